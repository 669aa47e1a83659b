"""The language of provider files: what each of its words says, typed."""
