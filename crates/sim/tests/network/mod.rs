//! Services, nodes, quotas, budgets, volumes and identities with every possible fault: the result is always the same.

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
mod left_behind;
mod nodes;
mod quota;
mod scenarios;
mod small;
mod tokens;
mod volumes;
mod zones;
