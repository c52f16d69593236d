//! Objects in Kubernetes' protobuf encoding, which Go programs such as Helm send for built-in kinds.          (pure)
//!
//! Only labels, annotations and owner references are changed. All other bytes are kept as they are, so the fields of a
//! kind need not be known here.

use std::collections::BTreeMap;

use bytes::Bytes;
use prost::{Message, decode_length_delimiter, encode_length_delimiter};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

pub(super) const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";

/// The start of every encoded object.
const MAGIC: &[u8] = b"k8s\0";
/// The object in its envelope.
const RAW: usize = 2;
/// The metadata of an object of any kind.
const METADATA: usize = 1;
/// The type of a Secret.
const TYPE: usize = 3;
/// Labels, annotations and owner references in the metadata.
const CHANGED: [usize; 3] = [11, 12, 13];

#[derive(Clone, PartialEq, Message)]
struct Envelope {
    #[prost(message, optional, tag = "1")]
    type_meta: Option<TypeMeta>,
    #[prost(bytes = "bytes", tag = "2")]
    raw: Bytes,
    #[prost(string, tag = "3")]
    content_encoding: String,
}

#[derive(Clone, PartialEq, Message)]
struct TypeMeta {
    #[prost(string, tag = "1")]
    api_version: String,
    #[prost(string, tag = "2")]
    kind: String,
}

#[derive(Clone, PartialEq, Message, Serialize)]
struct Names {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "3")]
    namespace: String,
}

#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Changeable {
    #[prost(btree_map = "string, string", tag = "11")]
    labels: BTreeMap<String, String>,
    #[prost(btree_map = "string, string", tag = "12")]
    annotations: BTreeMap<String, String>,
    #[prost(message, repeated, tag = "13")]
    owner_references: Vec<OwnerReference>,
}

#[derive(Clone, PartialEq, Message, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct OwnerReference {
    #[prost(string, tag = "5")]
    api_version: String,
    #[prost(string, tag = "1")]
    kind: String,
    #[prost(string, tag = "3")]
    name: String,
    #[prost(string, tag = "4")]
    uid: String,
    #[prost(bool, optional, tag = "6")]
    #[serde(skip_serializing_if = "Option::is_none")]
    controller: Option<bool>,
    #[prost(bool, optional, tag = "7")]
    #[serde(skip_serializing_if = "Option::is_none")]
    block_owner_deletion: Option<bool>,
}

/// A field of a message, with its number.
struct Field<'a> {
    number: usize,
    /// The field with its key.
    whole: &'a [u8],
    /// The contents of a string, of bytes or of a message.
    contents: &'a [u8],
}

/// Reads the kind, the metadata and, of a Secret, the type of an object. The rest is left out.
pub(super) fn read(body: &[u8]) -> Option<Value> {
    let envelope = Envelope::decode(body.strip_prefix(MAGIC)?).ok()?;
    let type_meta = envelope.type_meta?;
    if !envelope.content_encoding.is_empty() {
        return None;
    }
    let fields = fields(&envelope.raw)?;
    let metadata = contents(&fields, METADATA);
    let mut object = json!({
        "apiVersion": type_meta.api_version, "kind": type_meta.kind,
        "metadata": Changeable::decode(&*metadata).ok()?,
    });
    let Names { name, namespace } = Names::decode(&*metadata).ok()?;
    for (field, value) in [("name", name), ("namespace", namespace)] {
        if !value.is_empty() {
            object["metadata"][field] = value.into();
        }
    }
    if type_meta.kind == "Secret" {
        object["type"] = String::from_utf8(contents(&fields, TYPE)).ok()?.into();
    }
    Some(object)
}

/// Writes the labels, annotations and owner references of an object that was [read](read) into its body.
pub(super) fn write(body: &[u8], object: &Value) -> Option<Bytes> {
    let changed = Changeable::deserialize(&object["metadata"]).ok()?;
    let envelope = fields(body.strip_prefix(MAGIC)?)?;
    let raw = contents(&envelope, RAW);
    let object = fields(&raw)?;
    let metadata = contents(&object, METADATA);
    let mut metadata = without(&fields(&metadata)?, &CHANGED);
    changed.encode(&mut metadata).ok()?;
    let object = [field(METADATA, &metadata)?, without(&object, &[METADATA])].concat();
    Some([MAGIC, &without(&envelope, &[RAW]), &field(RAW, &object)?].concat().into())
}

/// Returns the contents of a message field. Parts of a message that is split are merged by joining them.
fn contents(fields: &[Field<'_>], number: usize) -> Vec<u8> {
    let parts = fields.iter().filter(|field| field.number == number);
    parts.flat_map(|field| field.contents).copied().collect()
}

fn without(fields: &[Field<'_>], numbers: &[usize]) -> Vec<u8> {
    let kept = fields.iter().filter(|field| !numbers.contains(&field.number));
    kept.flat_map(|field| field.whole).copied().collect()
}

fn field(number: usize, contents: &[u8]) -> Option<Vec<u8>> {
    let mut field = Vec::with_capacity(contents.len() + 12);
    encode_length_delimiter(number << 3 | 2, &mut field).ok()?;
    encode_length_delimiter(contents.len(), &mut field).ok()?;
    field.extend_from_slice(contents);
    Some(field)
}

/// Splits a message into its fields. `None` if it is not one.
fn fields(mut rest: &[u8]) -> Option<Vec<Field<'_>>> {
    let mut fields = Vec::new();
    while !rest.is_empty() {
        let start = rest;
        let key = decode_length_delimiter(&mut rest).ok()?;
        let length = match key & 7 {
            0 => decode_length_delimiter(&mut rest).ok().map(|_| 0)?,
            1 => 8,
            2 => decode_length_delimiter(&mut rest).ok()?,
            5 => 4,
            _ => return None,
        };
        let (contents, after) = rest.split_at_checked(length)?;
        rest = after;
        fields.push(Field { number: key >> 3, whole: &start[..start.len() - rest.len()], contents });
    }
    Some(fields)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A Secret with a resource version (field 6), data (field 2) and a type, as Go encodes it.
    fn secret(labels: &[(&str, &str)]) -> Vec<u8> {
        let text = |number, text: &str| field(number, text.as_bytes()).expect("it fits");
        let labels = labels
            .iter()
            .flat_map(|(name, value)| field(11, &[text(1, name), text(2, value)].concat()).expect("it fits"));
        let metadata = [text(1, "x"), text(3, "a"), text(6, "7")].concat();
        let metadata: Vec<u8> = metadata.into_iter().chain(labels).collect();
        let data = field(2, &[text(1, "release"), text(2, "H4sI")].concat()).expect("it fits");
        let raw = [field(1, &metadata).expect("it fits"), data, text(TYPE, "helm.sh/release.v1")].concat();
        let type_meta = field(1, &[text(1, "v1"), text(2, "Secret")].concat()).expect("it fits");
        [MAGIC, &type_meta, &field(RAW, &raw).expect("it fits"), &text(4, "")].concat()
    }

    #[test]
    fn the_metadata_of_an_object_is_read() {
        let expected = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "helm.sh/release.v1",
            "metadata": {"name": "x", "namespace": "a", "labels": {"owner": "helm"}, "annotations": {}, "ownerReferences": []},
        });
        assert_eq!(read(&secret(&[("owner", "helm")])), Some(expected));
    }

    #[test]
    fn a_change_of_the_metadata_keeps_all_other_bytes() {
        let body = secret(&[]);
        let mut object = read(&body).expect("it is an object");
        let reference = json!({"apiVersion": "example.com/v1", "kind": "Shop", "name": "shop", "uid": "u1", "controller": true});
        object["metadata"]["labels"] = json!({"owner": "helm"});
        object["metadata"]["ownerReferences"] = json!([reference]);
        let changed = write(&body, &object).expect("it can be written");
        assert_eq!(read(&changed), Some(object.clone()));
        object["metadata"]["ownerReferences"] = json!([]);
        let expected = secret(&[("owner", "helm")]);
        let back = write(&changed, &object).expect("it can be written");
        assert_eq!(
            fields(&back[4..]).map(|fields| contents(&fields, RAW)),
            fields(&expected[4..]).map(|fields| contents(&fields, RAW))
        );
    }

    #[test]
    fn bytes_that_are_no_object_are_rejected() {
        let body = secret(&[("owner", "helm")]);
        for length in 0..body.len() {
            // Some beginnings are shorter objects. None may panic.
            _ = read(&body[..length]).and_then(|object| write(&body[..length], &object));
        }
        assert_eq!(read(b"{}"), None);
        assert_eq!(read(b"k8s\0\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"), None);
        assert_eq!(read(b"k8s\0\x12\xff\xff\xff\xff\x0f"), None, "a length beyond the end");
    }
}
