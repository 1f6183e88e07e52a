//! Conversations past the window of a real model's server.
