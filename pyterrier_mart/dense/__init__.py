"""Dense retrieval: texts as vectors of a sentence-transformers model, re-ranked, indexed and searched."""
