"""The MART paper's Table 4, where the knowledge comes from: ``python -m experiments.knowledge --knowledge ...``.

The first stage is the same for all (the bundled table); the re-rankers differ in the table that their translation heads
see: the bundled one, learned from parallel text, and those that are named, such as a dictionary or word vectors::

    pyterrier-mart table convert de-en.txt muse.table --source de --target en --from muse
    python -m experiments.knowledge --knowledge dictionary=muse.table --vectors embeddings=de.vec,en.vec

Tables are saved ones, or files that are read by their endings as :meth:`TranslationTable.read` does; vectors become a
table of the 5 nearest words.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from experiments.ranking import Setting, arguments, write
from pyterrier_mart import TranslationTable
from pyterrier_mart.translation.formats import read_vectors


def main() -> None:
    """Runs the experiment."""
    parser = arguments(__doc__)
    parser.add_argument("--knowledge", nargs="*", default=[], metavar="NAME=FILE", help="more tables")
    parser.add_argument("--vectors", nargs="*", default=[], metavar="NAME=SOURCE,TARGET", help="word vectors")
    args = parser.parse_args()
    source, target = args.pair.split("-")
    with ExitStack() as stack:
        setting = Setting(args, stack)
        tables = {"parallel text": setting.table}
        for entry in args.knowledge:
            name, _, path = entry.partition("=")
            saved = Path(path).is_dir()
            tables[name] = TranslationTable.load(path) if saved else TranslationTable.read(path, source, target)
        for entry in args.vectors:
            name, _, paths = entry.partition("=")
            tables[name] = read_vectors(*paths.split(","), source, target)
        systems = {"SMT": setting.first, "MART-PLB": setting.mart("MART-PLB", placebo=True)}
        systems |= {f"MART, {name}": setting.mart(name, table=table) for name, table in tables.items()}
        results = setting.run(systems)
        terms = [word for query in setting.topics["query"] for word in setting.table.source.tokens(query)]
        known = {name: f"{len(table):,} entries, {table.coverage(terms):.0%}" for name, table in tables.items()}
        coverage = "".join(f"- {name}: {what} of the questions' words known\n" for name, what in known.items())
        title = f"Where the knowledge comes from: XQuAD-R {args.pair} sentences, encoder {args.encoder}"
        name = args.name or f"knowledge-{args.pair}-{args.encoder}"
        write(name, title, setting, results, baseline="MART, parallel text", notes=[("Tables", coverage)])


if __name__ == "__main__":
    main()
