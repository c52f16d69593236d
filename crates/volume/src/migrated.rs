//! The drivers that have taken over from plugins that were once built in. In v1.34 all of these have moved
//! out: whoever asks for a plugin of old gets its driver.

/// Plugins and their drivers.
const MOVED: [(&str, &str); 7] = [
    ("kubernetes.io/aws-ebs", "ebs.csi.aws.com"),
    ("kubernetes.io/gce-pd", "pd.csi.storage.gke.io"),
    ("kubernetes.io/cinder", "cinder.csi.openstack.org"),
    ("kubernetes.io/azure-disk", "disk.csi.azure.com"),
    ("kubernetes.io/azure-file", "file.csi.azure.com"),
    ("kubernetes.io/vsphere-volume", "csi.vsphere.vmware.com"),
    ("kubernetes.io/portworx-volume", "pxd.portworx.com"),
];

/// The driver that does what a plugin did, if it has moved out.
pub fn driver_of(plugin: &str) -> Option<&'static str> {
    MOVED.iter().find(|(moved, _)| *moved == plugin).map(|(_, driver)| *driver)
}
