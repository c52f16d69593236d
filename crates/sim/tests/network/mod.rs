//! Services, nodes, quotas, budgets, volumes and identities, disturbed in every way there is: the world ends the same.

mod addresses;
mod autoscaler;
mod budget;
mod certificates;
mod claims;
mod endpoints;
mod every;
mod gated;
mod identity;
mod labels;
mod land;
mod left_behind;
mod nodes;
mod quota;
mod small;
mod tokens;
mod volumes;
mod zones;
