//! Verifies a token before its claims are trusted.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Map, Value};
use setpoint_token::{Algorithm, Parts};

use super::keys::Keys;

/// How far issuers' clocks may be ahead, in seconds.
const NOT_BEFORE_LEEWAY: i64 = 60;
const GOOGLE: &str = "https://accounts.google.com";

/// Returns the issuer named in a token, without verifying it.
pub(super) fn issuer_of(token: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Issued {
        #[serde(default)]
        iss: String,
    }
    let mut parts = token.split('.');
    let (_, claims, _, None) = (parts.next()?, parts.next()?, parts.next()?, parts.next()) else {
        return None;
    };
    let claims: serde_json::Map<_, _> = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).ok()?).ok()?;
    let issued: Issued = serde_json::from_value(claims.into()).ok()?;
    // Google sometimes omits the scheme.
    Some(if issued.iss == "accounts.google.com" { GOOGLE.into() } else { issued.iss })
}

/// Verifies a token's issuer, audience, times and signature, and returns its claims.
pub(super) async fn verified(
    token: &str,
    keys: &Keys,
    audiences: &[String],
    algorithms: &[Algorithm],
    now: Timestamp,
) -> Result<Map<String, Value>, String> {
    let parts = Parts::of(token).ok_or("oidc: malformed jwt")?;
    let claims: Map<String, Value> = serde_json::from_slice(&parts.claims)
        .map_err(|why| format!("oidc: failed to unmarshal claims: {why}"))?;
    check_audience(&claims, audiences)?;
    check_times(&claims, now)?;
    let algorithm = Algorithm::parse(&parts.algorithm).filter(|found| algorithms.contains(found));
    let algorithm = algorithm.ok_or_else(|| {
        let known: Vec<&str> = algorithms.iter().map(|algorithm| algorithm.name()).collect();
        format!(
            "oidc: id token signed with unsupported algorithm, expected {known:?} got {:?}",
            parts.algorithm
        )
    })?;
    if algorithm == Algorithm::Es512 {
        return Err("failed to verify signature: ES512 is not supported: this server has no P-521".into());
    }
    let signed = keys.verify(&parts, algorithm).await;
    signed.map_err(|why| format!("failed to verify signature: {why}"))?;
    Ok(claims)
}

fn check_audience(claims: &Map<String, Value>, audiences: &[String]) -> Result<(), String> {
    let found: Vec<&str> = match claims.get("aud") {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::String(one)) => vec![one],
        Some(Value::Array(several)) => {
            let texts = several.iter().map(Value::as_str).collect::<Option<_>>();
            texts.ok_or("oidc: failed to unmarshal claims: aud must be a string or a list of strings")?
        }
        Some(_) => {
            return Err("oidc: failed to unmarshal claims: aud must be a string or a list of strings".into());
        }
    };
    match audiences.iter().any(|wanted| found.contains(&wanted.as_str())) {
        true => Ok(()),
        false => Err(format!("oidc: expected audience in {audiences:?} got {found:?}")),
    }
}

fn check_times(claims: &Map<String, Value>, now: Timestamp) -> Result<(), String> {
    // A token without an expiry is expired.
    let expires = seconds(claims, "exp")?.unwrap_or(i64::MIN);
    if i128::from(expires) * 1_000_000_000 < now.as_nanosecond() {
        return Err(format!("oidc: token is expired (Token Expiry: {expires})"));
    }
    let not_before = seconds(claims, "nbf")?.unwrap_or(i64::MIN);
    if i128::from(not_before) * 1_000_000_000
        > now.as_nanosecond() + i128::from(NOT_BEFORE_LEEWAY) * 1_000_000_000
    {
        return Err(format!("oidc: current time {now} before the nbf (not before) time: {not_before}"));
    }
    Ok(())
}

/// Reads a time in seconds: a number, or a number in quotes. Saturates if it is out of range.
fn seconds(claims: &Map<String, Value>, claim: &str) -> Result<Option<i64>, String> {
    let bad = || format!("oidc: failed to unmarshal claims: {claim} must be a number");
    let number = match claims.get(claim) {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::Number(number)) => number.to_string(),
        Some(Value::String(text)) => text.clone(),
        Some(_) => return Err(bad()),
    };
    match (number.parse::<i64>(), number.parse::<f64>()) {
        (Ok(whole), _) => Ok(Some(whole)),
        (_, Ok(real)) if real.is_finite() => Ok(Some(real as i64)),
        _ => Err(bad()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(claims: &Value) -> Result<(), String> {
        let now = Timestamp::from_second(1_000).unwrap();
        check_times(claims.as_object().unwrap(), now)
    }

    #[test]
    fn a_token_is_valid_between_its_times() {
        for good in [
            json!({"exp": 1000}),
            json!({"exp": "2000"}),
            json!({"exp": 1e18}),
            json!({"exp": 2000, "nbf": 1060}),
            json!({"exp": 2000, "nbf": null}),
        ] {
            assert_eq!(check(&good), Ok(()), "{good}");
        }
        for bad in [
            json!({}),
            json!({"exp": 999}),
            json!({"exp": null}),
            json!({"exp": "x"}),
            json!({"exp": "NaN"}),
            json!({"exp": "inf"}),
            json!({"exp": [1]}),
            json!({"exp": 2000, "nbf": 1061}),
            json!({"exp": -1e300}),
        ] {
            assert!(check(&bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_token_is_for_an_audience() {
        let check = |aud: Value| {
            let claims = json!({ "aud": aud });
            check_audience(claims.as_object().unwrap(), &["a".into(), "b".into()]).is_ok()
        };
        assert!(check(json!("a")) && check(json!(["x", "b"])));
        assert!(!check(json!("x")) && !check(json!([])) && !check(json!(null)) && !check(json!(["a", 1])));
    }

    #[test]
    fn malformed_tokens_have_no_issuer() {
        for token in ["", "a", "a.b", "a.b.c", "e30.e30.e30.e30", "..", "a.e30", "e30.W10.e30"] {
            assert_eq!(issuer_of(token), None, "{token}");
        }
        let claims = URL_SAFE_NO_PAD.encode(r#"{"iss":"accounts.google.com"}"#);
        assert_eq!(issuer_of(&format!("x.{claims}.y")).as_deref(), Some(GOOGLE));
    }
}
