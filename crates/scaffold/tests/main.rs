//! Whole projects: what is in them, and what happens to them.

mod example;
mod projects;
