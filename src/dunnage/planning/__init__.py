"""Planning: Release in, Plan out. Nothing in here can reach private rows; an import contract sees to it."""
