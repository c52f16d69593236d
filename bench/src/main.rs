//! Measurements, each by its name: `setpoint-bench NAME`.

mod process;
mod store_engines;
mod store_memory;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.first().map(String::as_str) {
        Some("store-engines") => store_engines::run(),
        Some("store-memory") => store_memory::run(),
        Some("store-engine") => store_engines::run_one(&arguments[1..]),
        _ => eprintln!("usage: setpoint-bench store-engines | store-memory"),
    }
}
