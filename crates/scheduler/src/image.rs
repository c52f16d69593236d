//! Image locality scoring. Pure.

use crate::ledger::{Ledger, NodeInfo};
use crate::view::Pod;

/// Bounds on the total image size, the upper one per container. Sizes below score the minimum, sizes above the maximum.
const LEAST: i64 = 23 * 1024 * 1024;
const MAX_PER_CONTAINER: i64 = 1000 * 1024 * 1024;

/// Scores candidates by the images they have. `None` if no node reports images.
pub(crate) fn scores(pod: &Pod, candidates: &[&NodeInfo], ledger: &Ledger) -> Option<Vec<i64>> {
    if !ledger.knows_images() {
        return None;
    }
    let containers = pod.spec.init_containers.iter().chain(&pod.spec.containers);
    let images: Vec<String> = containers.map(|container| with_tag(&container.image)).collect();
    let nodes = ledger.nodes().count().max(1) as f64;
    let most = MAX_PER_CONTAINER * images.len().max(1) as i64;
    // Images are weighted by the share of nodes that have them. Otherwise all pods would follow the first one.
    let worth = |node: &NodeInfo, image: &String| {
        let size = node.images.get(image).copied().unwrap_or(0) as f64;
        (size * (ledger.spread_of_image(image) as f64 / nodes)) as i64
    };
    let score = |node: &&NodeInfo| {
        let sum: i64 = images.iter().map(|image| worth(node, image)).sum();
        100 * (sum.clamp(LEAST, most) - LEAST) / (most - LEAST)
    };
    Some(candidates.iter().map(score).collect())
}

fn with_tag(image: &str) -> String {
    let tagged = image.rfind(':') > image.rfind('/');
    if tagged { image.to_owned() } else { format!("{image}:latest") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_without_a_tag_is_the_latest() {
        let check = |image, expected| assert_eq!(with_tag(image), expected);
        check("nginx", "nginx:latest");
        check("nginx:1", "nginx:1");
        check("host:5000/nginx", "host:5000/nginx:latest");
        check("host:5000/nginx:1", "host:5000/nginx:1");
    }
}
