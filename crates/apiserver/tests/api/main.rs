//! The API as clients see it, on a server in the same process and a clock that stands still.

mod client;
mod objects;
