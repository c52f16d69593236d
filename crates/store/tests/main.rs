//! Integration tests of the store's engines. A single binary, because linking costs more than any of its modules.

#[macro_use]
mod engines;

mod concurrency;
mod conformance;
mod directory;
mod encrypted;
mod expiry;
mod faults;
mod forks;
mod kill;
mod model;
mod on_etcd;
mod snapshots;
