//! The graph, the plan and a model of the API server, together: whatever users do, in whatever order
//! monitors and workers get to it, what must stay stays and what must go goes.

mod graph;
mod model;
mod properties;
