//! Requests that steps send.

use serde_json::{Value, json};

use super::calls::Reply;
use super::component::StepError;
use super::exchanges::{Answer, MAX_BODY, Standing};
use super::template::Call;
use crate::egress::{Request, Response};
use crate::session::Session;

impl Session<'_> {
    /// Sends the request of a call.
    pub(super) fn http(&self, call: &Call, step: &str) -> Result<Reply, StepError> {
        let params = &call.params;
        if !params["tls_config"].is_null() {
            return Err(StepError::Fail(format!("{}: tls_config is not supported", call.path)));
        }
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let headers = params["request"]["header"].as_object().into_iter().flatten();
        let request = Request {
            method: text(&params["method"]),
            url: text(&params["url"]),
            headers: headers.map(|(name, value)| (name.clone(), text(value))).collect(),
            body: text(&params["request"]["body"]),
        };
        let response = self.send(request, step, &call.path)?;
        let result = json!({
            "body": response.body, "header": response.headers, "trailer": {}, "statusCode": response.status,
        });
        Ok(Reply::Done(if call.is_flat() { json!({"response": result}) } else { result }))
    }

    /// Returns the response to a step's request, which is sent if necessary. Never waits for it.
    pub(super) fn send(&self, request: Request, step: &str, path: &str) -> Result<Response, StepError> {
        if request.body.len() > MAX_BODY {
            return Err(StepError::Fail(format!("the request is longer than {MAX_BODY} bytes")));
        }
        // The rest of a URL may be secret.
        let at = format!("{} {}", request.method, origin(&request.url));
        match self.exchanges.exchange(&self.session_key(), step, path, request) {
            Standing::Answered(Answer::Response(response)) => Ok(response),
            Standing::Answered(Answer::Failed(why)) => Err(StepError::Retry(format!("{at}: {why}"))),
            Standing::Answered(Answer::TooLong) => {
                Err(StepError::Fail(format!("{at}: the response is longer than {MAX_BODY} bytes")))
            }
            Standing::UnderWay => Err(StepError::Await(format!("waits for the response to {at}"))),
            Standing::Busy => Err(StepError::Await(format!("{at} waits for other requests to end"))),
            Standing::TooMuch => Err(StepError::Fail("the responses of the step are too long".to_owned())),
            Standing::Disabled => Err(StepError::Fail("requests of steps are not enabled".to_owned())),
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
