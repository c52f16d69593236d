//! The API as clients see it, on a server in the same process and a clock that stands still.

mod access;
mod admission;
mod apply;
mod client;
mod custom;
mod deletion;
mod discovery;
mod evictions;
mod forms;
mod fuzz;
mod hostile;
mod legacy_tokens;
mod lists;
mod objects;
mod own_objects;
mod paths;
mod policies;
mod quotas;
mod reviews;
mod roles;
mod security;
mod services;
mod subresources;
mod updates;
mod watches;
mod workloads;
