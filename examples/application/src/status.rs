//! The status of an Application. Pure functions.

use k8s_openapi::api::apps::v1::Deployment;

use crate::{Application, ApplicationStatus, Phase};

/// Computes the status from the current Deployment, which is `None` while there is none.
pub(crate) fn status(application: &Application, deployment: Option<&Deployment>) -> ApplicationStatus {
    let generation = |meta: Option<i64>| meta.unwrap_or_default();
    let observed_generation = generation(application.metadata.generation);
    let Some((deployment, status)) = deployment.and_then(|it| Some((it, it.status.as_ref()?))) else {
        return ApplicationStatus { observed_generation, ..ApplicationStatus::default() };
    };
    let count = |number: Option<i32>| number.unwrap_or_default();
    let wanted = application.spec.replicas;
    let rolled_out = generation(status.observed_generation) == generation(deployment.metadata.generation)
        && count(status.updated_replicas) == wanted
        && count(status.replicas) == wanted;
    let ready_replicas = count(status.ready_replicas);
    let phase = if rolled_out && ready_replicas == wanted { Phase::Ready } else { Phase::Updating };
    ApplicationStatus { phase, ready_replicas, observed_generation }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::apps::v1::DeploymentStatus;

    fn application(replicas: i32) -> Application {
        let spec = crate::ApplicationSpec { image: "nginx".into(), replicas, port: 80 };
        Application::new("web", spec)
    }

    fn deployment(replicas: i32, ready: i32) -> Deployment {
        let status = DeploymentStatus {
            replicas: Some(replicas),
            updated_replicas: Some(replicas),
            ready_replicas: Some(ready),
            ..DeploymentStatus::default()
        };
        Deployment { status: Some(status), ..Deployment::default() }
    }

    #[test]
    fn an_application_is_ready_when_all_its_replicas_are() {
        let phase = |ready| status(&application(2), Some(&deployment(2, ready))).phase;
        assert_eq!([phase(1), phase(2)], [Phase::Updating, Phase::Ready]);
    }

    #[test]
    fn an_application_without_a_deployment_is_being_updated() {
        assert_eq!(status(&application(0), None).phase, Phase::Updating);
    }

    #[test]
    fn replicas_of_an_older_spec_do_not_make_it_ready() {
        let mut old = deployment(2, 2);
        old.metadata.generation = Some(2);
        assert_eq!(status(&application(2), Some(&old)).phase, Phase::Updating);
    }
}
