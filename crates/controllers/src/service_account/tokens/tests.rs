//! Tests of the contents of a Secret, and of token verification.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair, UnparsedPublicKey,
};
use serde_json::{Value, json};

use super::jwt::{Claims, TokenSigner};
use super::plan::{MissingData, encode, missing_data};
use super::view::Content;

/// Generated for this test and used nowhere else.
const RSA: &str = "-----BEGIN RSA PRIVATE KEY-----
MIIEogIBAAKCAQEAlAdbo8Mz2AlC6i818gKFSaaRlBvPfhZYF0DHlssPQx82U4pD
x4ZIObyMxH3rRdXP6sakVcvNA6ZihckjO63cwnof8mOGsqqxVClX23qw8yqF9gvP
PAcXzMoEOSQMQoqXRDaVhBNZZ0p2/6pTgbEROs9Ufs+LXL3to9najqp5DKJ3aYB/
FNMh2/4h/WflfjSd01GM6y7fJkeyhPcimClsH0t/uYb5DG5kdoKkBF9bf0stp+Cx
fTwGVD3lq0cz1dWncfRMl5HZ8fmpKaXUN4oGvIbNFLrnzFWpUZP4QdXnNQhOBvTh
LKYY4pPny4fpWlvoHavmR+nZKAWigBQutGSK7QIDAQABAoIBAAafXaYx8XvUzj2T
5yHwou3smc66f8nwTficWVGRvBkQqGmMYgPnKgwLN3EDASearTaftHJyL7XeF8JM
gVsGKD47IHrDoR8VK+HMB7Y2AvyeBmg/lwHkf1gWIaI8zp+be7D9kCrcgr9wQWqm
wB2pQlATPoB94IpBpQQTlweS8N9zw+AhD9/EyiWEh8scyksWHYHv/eJYCuLFlSuA
KQ3Wy6l52THnNyl732Hb/aF+grpu5LqM/uUPZ52uWs+Yg2KjqRN8AWW1tAPpZZJZ
z2oMmRP3oVfy02/r/UX7m/8Mptipv9bcxlM5GEKuWObJPh+lQo9Q9XtwxROra/Qt
c1qMLjECgYEAxgTeRS09ogucqIMkdjB+LsfaUixBp9pWmj5o+st1xMuXXbcV1K5S
nIuvqAGoaWjZEPzJF+biK88T0Hjt11H43VgopKA7jghtgRMkqVccA/SVD4HUQB05
8FCJis6mfK+cO6i0WXexVr3pDTn8ZyJuxUgzdSeyjIFW7987tix+3OcCgYEAv19Q
Jvj9Dyd1ndSrCggtIHWBuPhidN48ia/pnEZA9/rcwwkKuAoGDURJbLBHg/3bTy71
P00oM3vpbbxcl/YmgYgQYZ4B+gv/+lu1wATAKSYuC9ewOcebGC1RgG0w/y/N0Vq0
uf+/BN6W+6X2ph0WgRS6B/eBpPkP0nHsa0Jv6wsCgYAVyntbSXs61eRLdwMQLo30
P/H6kPw4qIJXPv72emVfXrgti/RPD0/wAj82UdhioTMh9295veKtx3/6tRQXWeH1
Gbp/Q1LKcor6ZUznhbqDhOrSZgshcxXpKDO6nrsbhYe/2PTf05gkX4nB9tubzeI6
u5NOFSxE4gbbJsm/Zm4fiQKBgC4QZDutTUR7jA0cprr4ctxQTJRYfWKCJ/JAfKvY
IUVPhhoQMBtSllhVKpNV7zDvRv3NYM0G5nlWBz8ZyvPtFSGyvbaxkOo+PzRlJN9+
hT6iaQ0CsvGFgWiVZ/vQzK1wNUuCWOQ4kiM67P7P2QntEICrm4fVZMhwBwXx1CWR
TV03AoGAKEC9oA8ewgJ0ZW6uXJlW8+Rr+AOv7ToyS+pKwa8eiM2R0W7u5Pj+oYDc
uqIF33Jwl+q69cxUAINtveRgxFY/ro0psx7tmxmH+xAU6gFI7d15pS7BwLuU0iX4
zdC4C06X9GIzj69Vytg7Sb8wWs18/0IPdSvPqAJkx2CfzdTA6Rw=
-----END RSA PRIVATE KEY-----\n";

fn decoded(part: &str) -> Value {
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap()
}

#[test]
fn a_token_names_its_account_and_verifies_with_the_public_key() {
    let document =
        EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new()).unwrap();
    let pem =
        format!("-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n", STANDARD.encode(&document));
    let token = TokenSigner::from_pem(&pem).unwrap().sign(&Claims::new("shop", "t", "robot", "u1")).unwrap();
    let (signed, signature) = token.rsplit_once('.').unwrap();
    let (header, claims) = signed.split_once('.').unwrap();
    assert_eq!(decoded(header)["alg"], "ES256");
    let expected = json!({
        "iss": "kubernetes/serviceaccount",
        "sub": "system:serviceaccount:shop:robot",
        "kubernetes.io/serviceaccount/namespace": "shop",
        "kubernetes.io/serviceaccount/secret.name": "t",
        "kubernetes.io/serviceaccount/service-account.name": "robot",
        "kubernetes.io/serviceaccount/service-account.uid": "u1",
    });
    assert_eq!(decoded(claims), expected);
    let key =
        EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, document.as_ref(), &SystemRandom::new());
    let public =
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, key.unwrap().public_key().as_ref().to_vec());
    public.verify(signed.as_bytes(), &URL_SAFE_NO_PAD.decode(signature).unwrap()).unwrap();
}

#[test]
fn a_key_id_is_the_hash_of_the_public_key() {
    let token = TokenSigner::from_pem(RSA).unwrap().sign(&Claims::new("shop", "t", "robot", "u1")).unwrap();
    let header = decoded(token.split('.').next().unwrap());
    assert_eq!(header, json!({"alg": "RS256", "kid": "Dv4SVmUnk9pb-ixgzDndcf6eXIAAHSa5elvzowigsC8"}));
}

#[test]
fn an_invalid_key_is_rejected_with_a_reason() {
    let check = |pem: &str, expected: &str| {
        assert_eq!(
            TokenSigner::from_pem(pem).unwrap_err().to_string(),
            format!("no usable private key: {expected}")
        );
    };
    check("", "there is no PEM block of a private key");
    check(
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----",
        "there is no PEM block of a private key",
    );
    check(
        "-----BEGIN EC PRIVATE KEY-----\nAAAA\n-----END EC PRIVATE KEY-----",
        "neither RSA nor P-256 nor P-384: InvalidEncoding",
    );
    check(
        "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----",
        "neither RSA nor P-256 nor P-384: InvalidEncoding",
    );
}

#[test]
fn a_secret_keeps_its_data_except_an_outdated_certificate() {
    let content = |data: Value| serde_json::from_value::<Content>(json!({"data": data})).unwrap();
    let all = MissingData { ca: Some(encode("new")), namespace: Some(encode("shop")), token: true };
    assert_eq!(missing_data(&content(Value::Null), "shop", Some("new")), all);
    assert_eq!(missing_data(&content(json!({"token": ""})), "shop", Some("new")), all);
    let full = |ca: &str| content(json!({"token": "x", "namespace": "y", "ca.crt": encode(ca)}));
    assert!(missing_data(&full("new"), "shop", Some("new")).nothing());
    assert!(missing_data(&full("old"), "shop", None).nothing());
    let certificate = MissingData { ca: Some(encode("new")), ..MissingData::default() };
    assert_eq!(missing_data(&full("old"), "shop", Some("new")), certificate);
}
