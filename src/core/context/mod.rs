//! What the model sees: the context built from the tree, counted against the window, compacted when it is full.
