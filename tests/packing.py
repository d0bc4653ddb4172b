"""Archives of small files for tests."""

import errno
import io
import lzma
import os
import tarfile
import zipfile
from contextlib import contextmanager


def as_bytes(content):
    return content.encode() if isinstance(content, str) else content


def make_zip(files):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return out.getvalue()


def make_tar(files, mode="w", format=tarfile.PAX_FORMAT):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode, format=format) as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(as_bytes(content))
            archive.addfile(info, io.BytesIO(as_bytes(content)))
    return out.getvalue()


def make_deb(files):
    """A Debian package: an ar archive with the files in data.tar.xz."""
    data = b"!<arch>\n"
    members = {"debian-binary": b"2.0", "control.tar.xz": b"odd", "data.tar.xz": lzma.compress(make_tar(files))}
    for name, content in members.items():
        data += f"{name:<16}{0:<12}{0:<6}{0:<6}{'100644':<8}{len(content):<10}`\n".encode() + content
        data += b"\n" * (len(content) % 2)
    return data


@contextmanager
def refused(monkeypatch, path):
    """Makes a file or folder one that cannot be read, also by the user who may read everything."""
    scan, open_raw = os.scandir, io.FileIO

    def check(name):
        if os.fspath(name) == os.fspath(path):
            raise PermissionError(errno.EACCES, "Permission denied", os.fspath(name))

    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", lambda name=".": check(name) or scan(name))
        patch.setattr(
            "pyterrier_mart.archives.CountedFile.__init__",
            lambda self, name, progress: (
                check(name) or (open_raw.__init__(self, os.fspath(name)), setattr(self, "_progress", progress))[0]
            ),
        )
        yield


def zipped(path, files):
    path.write_bytes(make_zip(files))
    return path


def tarred(path, files, mode="w:gz"):
    path.write_bytes(make_tar(files, mode))
    return path
