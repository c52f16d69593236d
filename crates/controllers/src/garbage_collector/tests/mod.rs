//! Tests of the graph and the plan against a model API server: whatever users do, and in whatever order monitors and
//! workers run, what must stay stays and what must go goes.

mod graph;
mod model;
mod properties;
