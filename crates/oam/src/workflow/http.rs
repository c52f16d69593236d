//! Requests that steps send.

use serde_json::{Value, json};

use super::calls::Reply;
use super::component::StepError;
use super::template::Call;
use crate::egress::{Request, Response};
use crate::session::Session;

/// The longest body of a request and of a response: what steps pass on is kept in a ConfigMap.
const MAX_BODY: usize = 1 << 20;

impl Session<'_> {
    /// Sends the request of a call.
    pub(super) async fn http(&self, call: &Call) -> Result<Reply, StepError> {
        let params = &call.params;
        if !params["tls_config"].is_null() {
            return Err(StepError::Fail(format!("{}: tls_config is not supported", call.path)));
        }
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let headers = params["request"]["header"].as_object().into_iter().flatten();
        let response = self
            .send(Request {
                method: text(&params["method"]),
                url: text(&params["url"]),
                headers: headers.map(|(name, value)| (name.clone(), text(value))).collect(),
                body: text(&params["request"]["body"]),
            })
            .await?;
        let result = json!({
            "body": response.body, "header": response.headers, "trailer": {}, "statusCode": response.status,
        });
        Ok(Reply::Done(if call.is_flat() { json!({"response": result}) } else { result }))
    }

    /// Sends a request.
    pub(super) async fn send(&self, request: Request) -> Result<Response, StepError> {
        let Some(egress) = self.egress else {
            return Err(StepError::Fail("requests of steps are not enabled".to_owned()));
        };
        if request.body.len() > MAX_BODY {
            return Err(StepError::Fail(format!("the request is longer than {MAX_BODY} bytes")));
        }
        // The rest of a URL may be a secret.
        let at = format!("{} {}", request.method, origin(&request.url));
        let response = egress.send(request).await.map_err(|why| StepError::Retry(format!("{at}: {why}")))?;
        match response.body.len() > MAX_BODY {
            true => Err(StepError::Fail(format!("{at}: the response is longer than {MAX_BODY} bytes"))),
            false => Ok(response),
        }
    }
}

/// Returns scheme and host of a URL, without credentials.
fn origin(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority.rsplit('@').next().unwrap_or_default();
    format!("{scheme}://{host}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_do_not_show_secrets_of_a_url() {
        assert_eq!(origin("https://u:p@hooks.example/services/T0/secret?x"), "https://hooks.example");
        assert_eq!(origin("nonsense"), "://nonsense");
    }
}
