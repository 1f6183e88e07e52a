//! The faults of the server that this one takes the place of, each as a test that would catch it.
