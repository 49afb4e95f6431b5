//! The right that each route needs.

use ardea_core::{Error, ErrorCode};
use axum::extract::MatchedPath;
use axum::http::{Extensions, Method};

use crate::AccessRole;
use crate::routes::{Operation, ROUTES, Verb};

/// A right of a caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Right {
    /// Needs no authentication, because it reveals nothing about the cluster; so does the web page.
    Public,
    /// Reads.
    View,
    /// Acts on jobs and maps.
    Operate,
    /// Starts programs on the cluster: submits and upgrades jobs.
    Upload,
    /// Acts on hosts, tokens and the audit log.
    Administer,
}

impl Operation {
    /// Returns the right that the operation needs. The match is exhaustive, so that a new operation
    /// has to state its right.
    pub(crate) fn right(self) -> Right {
        match self {
            Operation::Document => Right::Public,
            Operation::About
            | Operation::Events
            | Operation::JobEvents
            | Operation::Traffic
            | Operation::Hosts
            | Operation::List
            | Operation::PastJobs
            | Operation::Past
            | Operation::Describe
            | Operation::States
            | Operation::Checkpoints
            | Operation::Plans
            | Operation::Logs
            | Operation::Metrics
            | Operation::MetricsRange
            | Operation::Top
            | Operation::Why
            | Operation::DeadLetters
            | Operation::Maps
            | Operation::MapEntry
            | Operation::MapEntries
            | Operation::MapChanges => Right::View,
            Operation::Kill
            | Operation::Resume
            | Operation::Pause
            | Operation::Restart
            | Operation::Update
            | Operation::Rescale
            | Operation::Recover
            | Operation::Savepoint
            | Operation::CheckCheckpoints
            | Operation::PutEntry
            | Operation::RemoveEntry
            | Operation::DropMap => Right::Operate,
            Operation::Submit | Operation::RunProgram | Operation::Upgrade => Right::Upload,
            Operation::Drain
            | Operation::Undrain
            | Operation::CreateToken
            | Operation::Tokens
            | Operation::RevokeToken
            | Operation::Audit => Right::Administer,
        }
    }
}

/// Returns the right that a request needs. A path outside of the table of routes needs the right to
/// view for reads, and that to administer for all else.
pub(super) fn needed(method: &Method, extensions: &Extensions) -> Right {
    let verb = match *method {
        Method::GET | Method::HEAD => Verb::Get,
        Method::POST => Verb::Post,
        Method::PUT => Verb::Put,
        Method::DELETE => Verb::Delete,
        _ => return Right::View,
    };
    let Some(path) = extensions.get::<MatchedPath>() else {
        // The response is an error: there is nothing at the path.
        return Right::View;
    };
    let mut on_path = ROUTES.iter().filter(|route| route.path == path.as_str());
    match on_path.clone().find(|route| route.verb == verb) {
        Some(route) => route.operation.right(),
        // The response is an error: the method is not allowed.
        None if on_path.next().is_some() => Right::View,
        None if verb == Verb::Get => Right::View,
        None => Right::Administer,
    }
}

/// A caller whose identity is proven.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Caller {
    /// Name for the audit log.
    pub(crate) name: String,
    pub(crate) role: AccessRole,
    /// True if the caller may upload code although it is no admin.
    pub(crate) may_upload: bool,
}

impl Caller {
    /// Returns a caller with all rights.
    pub(crate) fn admin(name: &str) -> Self {
        Caller {
            name: name.to_string(),
            role: AccessRole::Admin,
            may_upload: true,
        }
    }

    fn has(&self, right: Right) -> bool {
        match right {
            Right::Public | Right::View => true,
            Right::Operate => self.role >= AccessRole::Operator,
            Right::Upload => {
                self.role == AccessRole::Admin
                    || self.role == AccessRole::Operator && self.may_upload
            }
            Right::Administer => self.role == AccessRole::Admin,
        }
    }

    /// Checks that the caller has a right.
    ///
    /// # Errors
    /// [`ErrorCode::Forbidden`] if it lacks the right.
    pub(crate) fn check(&self, right: Right) -> Result<(), Error> {
        if self.has(right) {
            return Ok(());
        }
        let needs = match right {
            Right::Public | Right::View => "needs a token",
            Right::Operate => "needs the role operator",
            Right::Upload => "needs the right to upload code",
            Right::Administer => "needs the role admin",
        };
        let what = format!(
            "the request {needs}, and the token {:?} has the role {}",
            self.name,
            self.role.as_str()
        );
        let error = Error::new(ErrorCode::Forbidden, what);
        Err(error.hint(match right {
            Right::Upload => {
                "ask an admin for a token: ardea token create NAME --role operator --upload"
            }
            _ => "ask an admin for a token with that role: ardea token create NAME --role ROLE",
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(role: AccessRole, may_upload: bool) -> Caller {
        Caller {
            name: "ci".into(),
            role,
            may_upload,
        }
    }

    #[test]
    fn each_role_has_the_rights_of_those_below_and_uploads_need_their_own() {
        let rights = [
            Right::View,
            Right::Operate,
            Right::Upload,
            Right::Administer,
        ];
        let has = |role, may_upload| rights.map(|it| caller(role, may_upload).check(it).is_ok());
        assert_eq!(has(AccessRole::Viewer, false), [true, false, false, false]);
        assert_eq!(has(AccessRole::Viewer, true), [true, false, false, false]);
        assert_eq!(has(AccessRole::Operator, false), [true, true, false, false]);
        assert_eq!(has(AccessRole::Operator, true), [true, true, true, false]);
        assert_eq!(has(AccessRole::Admin, false), [true; 4]);
    }

    #[test]
    fn a_read_is_a_view_and_each_other_method_acts() {
        for route in ROUTES {
            let right = route.operation.right();
            let is_read = matches!(right, Right::View | Right::Public);
            let is_admin_read = right == Right::Administer && route.verb == Verb::Get;
            assert_eq!(
                is_read || is_admin_read,
                route.verb == Verb::Get,
                "{}",
                route.path
            );
        }
    }
}
