"""Mechanisms: Dataset in, Publication out; one file each, named by what it does."""
