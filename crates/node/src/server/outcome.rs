//! How a remote command ended, as a kubelet reports it.

use serde_json::{Value, json};

/// The outcome of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Success,
    /// With another exit code.
    Exited {
        code: i32,
        command: Vec<String>,
    },
    /// It could not be started, or was cut off.
    Failed(String),
}

impl Outcome {
    /// Returns the outcome of a command that has exited.
    pub(super) fn of(code: i32, command: &[String]) -> Self {
        match code {
            0 => Self::Success,
            code => Self::Exited { code, command: command.to_vec() },
        }
    }

    fn message(&self) -> String {
        match self {
            Self::Success => String::new(),
            Self::Exited { code, command } => {
                let command = command.join(" ");
                let why = format!("error executing command [{command}], exit code {code}");
                format!("command terminated with non-zero exit code: {why}")
            }
            Self::Failed(why) => format!("Internal error occurred: {why}"),
        }
    }

    /// Encodes the outcome for a protocol: since version 4 as a `Status`, before as the text of a failure.
    pub(super) fn encode(&self, is_status: bool) -> String {
        if is_status { self.status().to_string() } else { self.message() }
    }

    fn status(&self) -> Value {
        let message = self.message();
        match self {
            Self::Success => json!({"metadata": {}, "status": "Success"}),
            Self::Exited { code, .. } => {
                let causes = json!([{"reason": "ExitCode", "message": code.to_string()}]);
                json!({"metadata": {}, "status": "Failure", "message": message, "reason": "NonZeroExitCode",
                       "details": {"causes": causes}})
            }
            Self::Failed(why) => json!({"metadata": {}, "status": "Failure", "message": message,
                "reason": "InternalError", "details": {"causes": [{"message": why}]}, "code": 500}),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_are_reported_as_a_kubelet_reports_them() {
        let command = ["sh".to_owned(), "-c".to_owned(), "exit 3".to_owned()];
        let exited = Outcome::of(3, &command);
        let message =
            "command terminated with non-zero exit code: error executing command [sh -c exit 3], exit code 3";
        assert_eq!(exited.encode(false), message);
        let status: Value = serde_json::from_str(&exited.encode(true)).expect("JSON");
        assert_eq!(status["message"], message);
        assert_eq!(status["reason"], "NonZeroExitCode");
        assert_eq!(status["details"]["causes"], json!([{"reason": "ExitCode", "message": "3"}]));
        assert_eq!(Outcome::of(0, &command).encode(true), r#"{"metadata":{},"status":"Success"}"#);
        assert_eq!(Outcome::Success.encode(false), "");
    }
}
