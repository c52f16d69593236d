//! Controllers in a whole control plane, and their documentation pages. A single binary, because each one would link
//! everything again.

mod collect;
mod page_text;
mod pages;
mod workloads;
