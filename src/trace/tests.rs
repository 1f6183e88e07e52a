//! Tests of the context and of the translated metrics.
