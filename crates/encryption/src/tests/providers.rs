//! Tests every provider, and which one a resource gets.

use proptest::prelude::*;

use super::*;
use crate::Identity;
use crate::aes_cbc::Block;
use crate::aes_gcm::Gcm;
use crate::cipher::Cipher;
use crate::extended_nonce::Seed;
use crate::secretbox::Secretbox;

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

const KEY: &[u8; 32] = b"0123456789abcdef0123456789abcdef";
const PATH: &[u8] = b"/registry/secrets/default/a";

#[test]
fn aes_cbc_reads_what_openssl_writes() {
    const IV: &str = "000102030405060708090a0b0c0d0e0f";
    for (length, sealed, expected) in [
        (32, "318352979b9857a57db4e1f94525ed0c", "hello"),
        (24, "6c21a6344ef46d332bc2bdddbf73b6d628d146d7009a5f24209f32ae328646ce", "exactly 16 bytes"),
        (16, "cada65093bdfede24f6df5db60ae4e18", ""),
    ] {
        let cipher = Block::new(&KEY[..length]).unwrap();
        assert_eq!(cipher.open(&unhex(&format!("{IV}{sealed}")), PATH).unwrap(), expected.as_bytes());
    }
}

#[test]
fn aes_gcm_reads_what_another_implementation_writes() {
    for (length, sealed) in [
        (16, "000102030405060708090a0b955aa87171a89247ba02ef2f1e73e91bc95c252c12"),
        (24, "000102030405060708090a0bc77ece5ff6ff96852f00e73c2b250b0ac01e82528b"),
        (32, "000102030405060708090a0b4580d710b624afd8634a3d0c07741a14f7596c7505"),
    ] {
        let cipher = Gcm::new(&KEY[..length]).unwrap();
        assert_eq!(cipher.open(&unhex(sealed), PATH).unwrap(), b"hello");
        assert!(cipher.open(&unhex(sealed), b"/registry/secrets/default/b").is_err(), "moved to another key");
    }
}

#[test]
fn derived_keys_read_what_another_implementation_writes() {
    let sealed = unhex(
        "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f000102030405060708090a0b7dd9355cdb41b600212e976da66f8cb187a304b1c0",
    );
    let seed = Seed::new(KEY.to_vec()).unwrap();
    assert_eq!(seed.open(&sealed, PATH).unwrap(), b"hello");
    assert!(seed.open(&sealed, b"elsewhere").is_err());
    assert!(Seed::new(vec![0; 31]).is_err());
}

#[test]
fn secretbox_reads_what_nacl_writes() {
    let key = unhex("1b27556473e985d462cd51197a9a46c76009549eac6474f206c4ee0844f68389");
    let nonce = "69696ee955b62b73cd62bda875fc73d68219e0036b7a0b37";
    let sealed = "f3ffc7703f9400e52a7dfb4b3d3305d98e993b9f48681273c29650ba32fc76ce48332ea7164d96a4476fb8c531a1186a\
                  c0dfc17c98dce87b4da7f011ec48c97271d2c20f9b928fe2270d6fb863d51738b48eeee314a7cc8ab932164548e526ae\
                  90224368517acfeabd6bb3732bc0e9da99832b61ca01b6de56244a9e88d5f9b37973f622a43d14a6599b1f654cb45a74\
                  e355a5";
    let plain = "be075fc53c81f2d5cf141316ebeb0c7b5228c52a4c62cbd44b66849b64244ffce5ecbaaf33bd751a1ac728d45e6c6129\
                 6cdc3c01233561f41db66cce314adb310e3be8250c46f06dceea3a7fa1348057e2f6556ad6b1318a024a838f21af1fde\
                 048977eb48f59ffd4924ca1c60902e52f0a089bc76897040e082f937763848645e0705";
    let stored = unhex(&format!("{nonce}{sealed}"));
    assert_eq!(Secretbox::new(&key).unwrap().open(&stored, PATH).unwrap(), unhex(plain));
}

#[tokio::test]
async fn every_provider_writes_its_prefix_and_reads_what_it_wrote() {
    for (provider, prefix) in [
        ("aescbc", "k8s:enc:aescbc:v1:k:"),
        ("aesgcm", "k8s:enc:aesgcm:v1:k:"),
        ("secretbox", "k8s:enc:secretbox:v1:k:"),
    ] {
        let encryption = load(&secrets_with(&[&keys(provider, &['k'])])).await.unwrap();
        for data in ["", "x", "exactly 16 bytes", "something that is longer than a block of the cipher"] {
            let stored = secret_a().round_trip(&encryption, data).await;
            assert!(starts_with(&stored, prefix), "{provider}");
            let again = secret_a().seal(&encryption, data).unwrap();
            assert_ne!(stored, again, "{provider}: every write has a nonce of its own");
        }
    }
    let encryption = load(&secrets_with(&["identity: {}"])).await.unwrap();
    assert_eq!(secret_a().round_trip(&encryption, "{}").await, b"{}");
}

#[tokio::test]
async fn a_value_moved_to_another_place_is_refused_where_it_is_authenticated() {
    let encryption = load(&secrets_with(&[&keys("aesgcm", &['k'])])).await.unwrap();
    let stored = secret_a().seal(&encryption, "x").unwrap();
    let elsewhere = Place::of("secrets", "/registry/secrets/default/b");
    let error = elsewhere.open(&encryption, &stored).await.unwrap_err();
    assert_eq!(error.to_string(), "cipher: message authentication failed");
}

#[tokio::test]
async fn the_first_key_writes_and_all_keys_read() {
    let old = load(&secrets_with(&[&keys("aescbc", &['a'])])).await.unwrap();
    let plain = load(&secrets_with(&["identity: {}"])).await.unwrap();
    let both = load(&secrets_with(&[&keys("aescbc", &['b', 'a']), "identity: {}"])).await.unwrap();
    let stored = secret_a().seal(&old, "x").unwrap();
    let opened = secret_a().open(&both, &stored).await.unwrap();
    assert_eq!((&*opened.data, opened.stale), (&b"x"[..], true));
    let opened = secret_a().open(&both, &secret_a().seal(&plain, "{}").unwrap()).await.unwrap();
    assert_eq!((&*opened.data, opened.stale), (&b"{}"[..], true));
    let stored = secret_a().round_trip(&both, "x").await;
    assert!(starts_with(&stored, "k8s:enc:aescbc:v1:b:"));
    // When migrating away from encryption, identity comes first.
    let leaving = load(&secrets_with(&["identity: {}", &keys("aescbc", &['b'])])).await.unwrap();
    let opened = secret_a().open(&leaving, &stored).await.unwrap();
    assert_eq!((&*opened.data, opened.stale), (&b"x"[..], true));
    assert_eq!(secret_a().round_trip(&leaving, "{}").await, b"{}");
}

#[tokio::test]
async fn a_provider_may_be_there_twice_with_keys_of_one_name() {
    let old = load(&secrets_with(&[&keys("aesgcm", &['a'])])).await.unwrap();
    let renamed = keys("aesgcm", &['b']).replace("name: b", "name: a");
    let new = load(&secrets_with(&[&renamed, &keys("aesgcm", &['a'])])).await.unwrap();
    let opened = secret_a().open(&new, &secret_a().seal(&old, "x").unwrap()).await.unwrap();
    assert_eq!((&*opened.data, opened.stale), (&b"x"[..], true));
}

#[tokio::test]
async fn values_that_no_provider_reads_are_errors_with_the_messages_of_v1_34() {
    let check = async |stored: &[u8], providers: &[&str], expected: &str| {
        let encryption = load(&secrets_with(providers)).await.unwrap();
        let error = secret_a().open(&encryption, stored).await.unwrap_err();
        assert_eq!(error.to_string(), expected);
    };
    let (cbc, gcm) = (keys("aescbc", &['a']), keys("aesgcm", &['b']));
    let unknown_key = "no matching key was found for the provided AES transformer";
    check(b"{}", &[&cbc], "no matching prefix found").await;
    check(b"k8s:enc:secretbox:v1:a:x", &[&cbc, "identity: {}"], "no matching prefix found").await;
    check(b"k8s:enc:aescbc:v1:b:x", &[&cbc], unknown_key).await;
    check(b"k8s:enc:aescbc:v1:a:x", &[&cbc], "the stored data was shorter than the required size").await;
    let not_blocks = "the stored data is not a multiple of the block size";
    check(b"k8s:enc:aescbc:v1:a:0123456789abcdef0", &[&cbc], not_blocks).await;
    let not_padded = "invalid PKCS7 data (empty or not padded)";
    check(b"k8s:enc:aescbc:v1:a:0123456789abcdef", &[&cbc], not_padded).await;
    check(b"k8s:enc:aesgcm:v1:b:0123456789abcdef", &[&gcm], "cipher: message authentication failed").await;
    let nothing = load(&configuration("- resources: [pods]\n  providers: [{identity: {}}]\n")).await.unwrap();
    let error = secret_a().open(&nothing, b"k8s:enc:aescbc:v1:a:x").await.unwrap_err();
    assert_eq!(error.to_string(), "identity transformer tried to read encrypted data");
}

#[tokio::test]
async fn wildcards_give_way_to_what_is_more_specific() {
    let rule = |resource: &str, name: char| {
        format!("- resources: ['{resource}']\n  providers:\n  - {}\n", keys("aescbc", &[name]))
    };
    let rules = [rule("secrets", 'a'), rule("*.", 'b'), rule("*.apps", 'c'), rule("*.*", 'd')].concat();
    let encryption = load(&configuration(&rules)).await.unwrap();
    for (resource, key) in
        [("secrets", 'a'), ("pods", 'b'), ("deployments.apps", 'c'), ("pandas.bears.example", 'd')]
    {
        let stored = Place::of(resource, "/x").round_trip(&encryption, "x").await;
        assert!(starts_with(&stored, &format!("k8s:enc:aescbc:v1:{key}:")), "{resource}");
    }
    for (rules, expected) in [
        (["*.", "secrets"], "resource \"secrets\" is masked by earlier rule \"*.\""),
        (["*.*", "deployments.apps"], "resource \"deployments.apps\" is masked by earlier rule \"*.*\""),
        (["*.apps", "*.apps"], "resource \"*.apps\" is masked by earlier rule \"*.apps\""),
    ] {
        let rules = rules.map(|resource| rule(resource, 'a')).concat();
        let error = load(&configuration(&rules)).await.err().unwrap();
        assert_eq!(error.to_string(), format!("error while building transformers: {expected}"));
    }
    // Repeating a resource adds providers.
    let twice = [rule("secrets", 'b'), rule("secrets", 'a')].concat();
    let encryption = load(&configuration(&twice)).await.unwrap();
    let old = load(&configuration(&rule("secrets", 'a'))).await.unwrap();
    let stored = secret_a().seal(&old, "x").unwrap();
    assert!(secret_a().open(&encryption, &stored).await.unwrap().stale);
}

#[tokio::test]
async fn load_errors_have_a_reason() {
    let error = load("").await.err().unwrap().to_string();
    assert!(
        error.starts_with("error while parsing file: error while loading file: encryption provider"),
        "{error}"
    );
    assert!(error.ends_with("is empty"), "{error}");
    let error = load("{}").await.err().unwrap().to_string();
    assert!(error.ends_with("Object 'Kind' is missing"), "{error}");
    let error = load(&secrets_with(&[])).await.err().unwrap().to_string();
    let expected = "resources[0].providers: Required value: at least one resources[0].providers is required";
    assert_eq!(error, format!("error while parsing file: {expected}"));
    let v1 = secrets_with(&["kms: {name: old, endpoint: 'unix:///nowhere'}"]);
    let error = load(&v1).await.err().unwrap().to_string();
    assert!(error.starts_with("error while building transformers: KMSv1 is deprecated"), "{error}");
    let missing = Encryption::load(options(Path::new("/does/not/exist"))).await.err().unwrap().to_string();
    assert!(
        missing.contains("error reading encryption provider configuration file \"/does/not/exist\""),
        "{missing}"
    );
}

#[test]
fn plain_values_are_distinguished_from_ciphertext() {
    assert!(
        Identity::check(b"{}").is_ok() && Identity::check(b"k8s\0").is_ok() && Identity::check(b"").is_ok()
    );
    assert!(Identity::check(b"k8s:enc:x").is_err());
}

proptest! {
    /// Decrypting any bytes ends with a value or an error.
    #[test]
    fn no_bytes_make_a_provider_panic(
        at in 0usize..4,
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
        flips in proptest::collection::vec((0usize..400, any::<u8>()), 0..4),
        cut in 0usize..400,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let provider = ["aescbc", "aesgcm", "secretbox", "aescbc"][at];
            let encryption = load(&secrets_with(&[&keys(provider, &['k'])])).await.unwrap();
            let raw = [format!("k8s:enc:{provider}:v1:k:").as_bytes(), &bytes].concat();
            _ = secret_a().open(&encryption, &raw).await;
            let mut bent = secret_a().seal(&encryption, "some value that takes more than a block").unwrap();
            for (at, by) in flips {
                let at = at % bent.len();
                bent[at] ^= by;
            }
            bent.truncate(bent.len() - cut % bent.len());
            _ = secret_a().open(&encryption, &bent).await;
        });
    }
}
