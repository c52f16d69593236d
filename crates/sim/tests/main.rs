//! Everything that runs in the simulation. One binary: each would link the whole control plane again.

mod behaviour;
mod faults;
mod network;
mod nodes;
mod own_controller;
mod replicas;
mod sets;
mod shadow;
mod test_cluster;
mod watches;
