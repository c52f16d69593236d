//! The names of resources.

/// Followed by the page size.
pub const HUGE_PAGES: &str = "hugepages-";

/// Compute resources that every quota may limit: plain, as requests and as limits.
pub const COMPUTE: [&str; 9] = [
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
];

pub fn is_huge_pages(name: &str) -> bool {
    name.starts_with(HUGE_PAGES)
}

/// Whether it is a quota resource for huge pages.
pub fn is_requested_huge_pages(name: &str) -> bool {
    name.strip_prefix("requests.").is_some_and(is_huge_pages)
}

/// Whether it is a native resource, not an extended one.
pub fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}
