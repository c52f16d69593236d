//! Gauges of bound and unbound volumes and claims, computed on scrape.

use setpoint::metrics::Metrics;
use setpoint::{Cached, Lister};
use setpoint_volume::{Claim, Volume};

use crate::metrics::{Counts, count, register_gauge};

/// Registers the gauges of volumes and claims.
pub(super) fn register(metrics: &Metrics, volumes: &Lister<Volume>, claims: &Lister<Claim>) {
    let gauge = |name, help, of: fn(&[Cached<Volume>]) -> Counts| {
        let volumes = volumes.clone();
        register_gauge(metrics, name, help, move || of(&volumes.list(None).unwrap_or_default()));
    };
    gauge("pv_collector_total_pv_count", "PersistentVolumes, by plugin and volume mode", totals);
    gauge("pv_collector_bound_pv_count", "PersistentVolumes that are bound", |all| of_volumes(all, true));
    gauge("pv_collector_unbound_pv_count", "PersistentVolumes that are not bound", |all| {
        of_volumes(all, false)
    });
    let gauge = |name, help, of: fn(&[Cached<Claim>]) -> Counts| {
        let claims = claims.clone();
        register_gauge(metrics, name, help, move || of(&claims.list(None).unwrap_or_default()));
    };
    gauge("pv_collector_bound_pvc_count", "PersistentVolumeClaims that are bound", |all| {
        of_claims(all, true)
    });
    gauge("pv_collector_unbound_pvc_count", "PersistentVolumeClaims that are not bound", |all| {
        of_claims(all, false)
    });
}

/// Counts the retroactive assignment of a default class to a claim.
pub(super) fn count_class(metrics: &Metrics, succeeded: bool) {
    let help = "Claims that were given the default StorageClass after their creation";
    metrics.count("retroactive_storageclass", help, &[], 1);
    let help = "Failed attempts to give an existing claim the default StorageClass";
    metrics.count("retroactive_storageclass_errors", help, &[], u64::from(!succeeded));
}

/// Counts a failed volume operation.
pub(super) fn count_failure(metrics: &Metrics, plugin: &str, operation: &str) {
    let labels = [("plugin_name", plugin), ("operation_name", operation)];
    metrics.count_as("volume_operation_total_errors", "Volume operations that failed", &labels, 1);
}

fn totals(volumes: &[Cached<Volume>]) -> Counts {
    count(volumes.iter().map(|volume| {
        let mode = volume.spec.volume_mode.as_deref().unwrap_or("Filesystem").to_owned();
        vec![("plugin_name", plugin(volume)), ("volume_mode", mode)]
    }))
}

/// Returns a volume's plugin name, including the driver for CSI.
fn plugin(volume: &Volume) -> String {
    let spec = &volume.spec;
    match (&spec.csi, &spec.host_path, &spec.nfs) {
        (Some(csi), _, _) => format!("kubernetes.io/csi:{}", csi.driver),
        (None, Some(_), _) => "kubernetes.io/host-path".to_owned(),
        (None, None, Some(_)) => "kubernetes.io/nfs".to_owned(),
        (None, None, None) if spec.iscsi.is_some() => "kubernetes.io/iscsi".to_owned(),
        (None, None, None) if spec.fc.is_some() => "kubernetes.io/fc".to_owned(),
        // Portworx is the only migrated in-tree plugin that still exists beside its CSI driver.
        (None, None, None) => {
            volume.migrated_plugin().filter(|plugin| plugin.contains("portworx")).unwrap_or("N/A").to_owned()
        }
    }
}

fn of_volumes(volumes: &[Cached<Volume>], bound: bool) -> Counts {
    let counted = volumes.iter().filter(|volume| (&*volume.status.phase == "Bound") == bound);
    count(counted.map(|volume| vec![("storage_class", volume.spec.storage_class_name.to_string())]))
}

fn of_claims(claims: &[Cached<Claim>], bound: bool) -> Counts {
    let counted = claims.iter().filter(|claim| (&*claim.status.phase == "Bound") == bound);
    count(counted.map(|claim| {
        let namespace = claim.key().namespace().unwrap_or_default().to_owned();
        let attributes = claim.spec.volume_attributes_class_name.as_deref().unwrap_or_default().to_owned();
        vec![
            ("namespace", namespace),
            ("storage_class", claim.class().to_owned()),
            ("volume_attributes_class", attributes),
        ]
    }))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::workload::fixtures::cached;
    use setpoint::metrics::Labels;

    #[test]
    fn volumes_and_claims_are_counted_by_what_they_are() {
        let volume = |name: &str, phase: &str, source: Value| {
            let mut spec = json!({"storageClassName": "fast", "volumeMode": "Filesystem"});
            for (field, value) in source.as_object().into_iter().flatten() {
                spec[field] = value.clone();
            }
            cached(json!({"metadata": {"name": name}, "spec": spec, "status": {"phase": phase}}))
        };
        let csi = || json!({"csi": {"driver": "d", "volumeHandle": "h"}});
        let volumes = [
            volume("a", "Bound", csi()),
            volume("b", "Available", csi()),
            volume("c", "Bound", json!({"nfs": {"server": "s", "path": "/"}})),
        ];
        let shown = |counts: Counts| -> Vec<String> {
            let text = |(labels, count): (Labels, i64)| {
                let labels: Vec<_> = labels.into_iter().map(|(_, value)| value).collect();
                format!("{} {count}", labels.join(","))
            };
            counts.into_iter().map(text).collect()
        };
        assert_eq!(shown(of_volumes(&volumes, true)), ["fast 2"]);
        assert_eq!(shown(of_volumes(&volumes, false)), ["fast 1"]);
        let expected = ["kubernetes.io/csi:d,Filesystem 2", "kubernetes.io/nfs,Filesystem 1"];
        assert_eq!(shown(totals(&volumes)), expected);
        let claim = cached(json!({"metadata": {"name": "c", "namespace": "ns"},
            "spec": {"storageClassName": "fast"}, "status": {"phase": "Pending"}}));
        assert_eq!(shown(of_claims(std::slice::from_ref(&claim), false)), ["ns,fast, 1"]);
        assert!(shown(of_claims(&[claim], true)).is_empty());
    }
}
