//! Services, nodes, quotas, budgets and volumes, disturbed in every way there is: the world ends the same.

mod autoscaler;
mod budget;
mod endpoints;
mod land;
mod nodes;
mod quota;
mod small;
mod volumes;
