//! The store's engines, from outside. One binary: linking costs more than any of its modules.

#[macro_use]
mod engines;

mod concurrency;
mod conformance;
mod directory;
mod encrypted;
mod faults;
mod kill;
mod model;
