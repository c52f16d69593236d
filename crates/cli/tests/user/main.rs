//! The real binary, as a user meets it. Real time, real TLS, a real kubectl.

mod binary;
mod kubectl;
mod lifecycle;
