//! The decoded views of an object.

use std::any::Any;
use std::sync::OnceLock;

use super::DecodeError;
use crate::View;

/// An append-only list, because an object rarely has more than two or three views. Readers never lock.
#[derive(Default)]
pub(super) struct Views {
    first: OnceLock<Box<Node>>,
}

struct Node {
    view: Box<dyn Any + Send + Sync>,
    next: OnceLock<Box<Node>>,
}

impl Views {
    /// Returns the view of type `V`, decoding it if necessary. Concurrent readers may each decode it, but all of them
    /// get the one that was stored first.
    pub(super) fn get_or_decode<V: View>(
        &self,
        decode: impl FnOnce() -> Result<V, DecodeError>,
    ) -> Result<&V, DecodeError> {
        let mut end = &self.first;
        while let Some(node) = end.get() {
            if let Some(view) = node.view.downcast_ref() {
                return Ok(view);
            }
            end = &node.next;
        }
        let decoded = Box::new(Node { view: Box::new(decode()?), next: OnceLock::new() });
        Ok(append(end, decoded))
    }
}

/// Appends a node with a view of type `V` at or after `end`, unless another reader has done so in the meantime.
fn append<V: View>(mut end: &OnceLock<Box<Node>>, node: Box<Node>) -> &V {
    let mut node = Some(node);
    loop {
        let kept = end.get_or_init(|| node.take().expect("taken at most once, then found in the list"));
        if let Some(view) = kept.view.downcast_ref() {
            return view;
        }
        end = &kept.next;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use bytes::Bytes;
    use serde::Deserialize;

    use crate::Object;

    #[derive(Deserialize)]
    struct Phase {
        status: serde_json::Value,
    }
    #[derive(Deserialize)]
    struct Spec {
        spec: serde_json::Value,
    }
    crate::view!(Phase of k8s_openapi::api::core::v1::Pod);
    crate::view!(Spec of k8s_openapi::api::core::v1::Pod);

    fn pod() -> Object {
        let raw = r#"{"metadata":{"name":"a"},"spec":{"nodeName":"n"},"status":{"phase":"Running"}}"#;
        Object::from_json(Bytes::from_static(raw.as_bytes())).unwrap()
    }

    #[test]
    fn a_view_is_decoded_once() {
        let pod = pod();
        let first: *const Phase = pod.view().unwrap();
        assert_eq!(pod.view::<Spec>().unwrap().spec["nodeName"], "n");
        assert_eq!(pod.view::<Phase>().unwrap().status["phase"], "Running");
        assert!(std::ptr::eq(first, pod.clone().view::<Phase>().unwrap()));
    }

    #[test]
    fn readers_that_race_get_the_same_view() {
        for _ in 0..200 {
            let (pod, start) = (pod(), Barrier::new(4));
            let seen: Vec<(usize, usize)> = std::thread::scope(|scope| {
                let readers: Vec<_> = (0..4)
                    .map(|i| {
                        let (pod, start) = (&pod, &start);
                        scope.spawn(move || {
                            start.wait();
                            let phase = || std::ptr::from_ref(pod.view::<Phase>().unwrap()).addr();
                            let spec = || std::ptr::from_ref(pod.view::<Spec>().unwrap()).addr();
                            if i % 2 == 0 {
                                (phase(), spec())
                            } else {
                                let s = spec();
                                (phase(), s)
                            }
                        })
                    })
                    .collect();
                readers.into_iter().map(|reader| reader.join().unwrap()).collect()
            });
            assert!(seen.windows(2).all(|pair| pair[0] == pair[1]), "{seen:?}");
        }
    }

    #[test]
    fn a_decode_error_names_the_object_and_leaves_it_readable() {
        #[derive(Debug, Deserialize)]
        struct Wrong {
            #[allow(dead_code)]
            status: u8,
        }
        crate::view!(Wrong of k8s_openapi::api::core::v1::Pod);
        let pod = pod();
        let error = pod.view::<Wrong>().unwrap_err().to_string();
        assert!(error.starts_with("cannot decode a as ") && error.ends_with("Wrong"), "{error}");
        assert_eq!(pod.view::<Phase>().unwrap().status["phase"], "Running");
    }
}
