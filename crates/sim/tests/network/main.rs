//! Services, nodes, quotas and budgets, disturbed in every way there is: the world ends the same.

mod endpoints;
mod land;
mod quota;
