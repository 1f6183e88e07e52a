//! The fold: the state of one session, as `session_opened` tells it and each event changes it.
