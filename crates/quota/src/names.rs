//! The names of resources.

/// Followed by the size of the pages.
pub const HUGE_PAGES: &str = "hugepages-";

/// What containers use and every quota may limit, by itself and as requests and limits.
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

/// Huge pages as a quota limits them.
pub fn is_requested_huge_pages(name: &str) -> bool {
    name.strip_prefix("requests.").is_some_and(is_huge_pages)
}

/// Known to Kubernetes itself, as opposed to extended.
pub fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}
