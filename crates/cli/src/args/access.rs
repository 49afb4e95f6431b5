//! The commands for tokens and the audit log.

use std::time::Duration;

use ardea::command_line::ClusterArgs;
use ardea_config::parse_duration;
use ardea_rest::AccessRole;
use clap::{Subcommand, ValueEnum};

pub(super) const TOKEN_HELP: &str = "\
Examples:
  ardea token create ci --role operator --upload --expires 90d
  ardea token create dashboard --role viewer
  ardea token list
  ardea token revoke ci

A viewer reads, an operator also acts on jobs and maps, an admin also drains hosts and manages tokens. Submitting and \
upgrading jobs runs code on the cluster: an operator needs --upload for it. The secret is printed once and not stored. The \
file that cluster.token_file names may have it instead of the cluster's token.";

/// The subcommands of `ardea token`.
#[derive(Subcommand, Debug)]
pub enum TokenCommand {
    /// Create a token and print its secret
    Create(TokenCreateArgs),
    /// List the tokens, without their secrets
    List(ClusterArgs),
    /// Revoke a token; all hosts refuse it within a second
    Revoke(TokenRevokeArgs),
}

/// The role of a token on the command line.
#[derive(Clone, Copy, ValueEnum, Debug)]
pub enum RoleChoice {
    /// Reads
    Viewer,
    /// Acts on jobs and maps
    Operator,
    /// Does everything
    Admin,
}

impl From<RoleChoice> for AccessRole {
    fn from(role: RoleChoice) -> AccessRole {
        match role {
            RoleChoice::Viewer => AccessRole::Viewer,
            RoleChoice::Operator => AccessRole::Operator,
            RoleChoice::Admin => AccessRole::Admin,
        }
    }
}

/// The arguments of `ardea token create`.
#[derive(clap::Args, Debug)]
pub struct TokenCreateArgs {
    /// Name of the token
    pub name: String,
    /// AccessRole of its holders
    #[arg(long, value_enum, default_value = "viewer")]
    pub role: RoleChoice,
    /// Allow an operator to submit and upgrade jobs
    #[arg(long)]
    pub upload: bool,
    /// Time until the token is refused, such as 12h or 90d [default: never]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub expires: Option<Duration>,
    /// The cluster.
    #[command(flatten)]
    pub place: ClusterArgs,
}

/// The arguments of `ardea token revoke`.
#[derive(clap::Args, Debug)]
pub struct TokenRevokeArgs {
    /// Name of the token
    pub name: String,
    /// The cluster.
    #[command(flatten)]
    pub place: ClusterArgs,
}

/// The arguments of `ardea audit`.
#[derive(clap::Args, Debug)]
pub struct AuditArgs {
    /// Number of entries of each host, at most 10000
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub limit: u32,
    /// The cluster.
    #[command(flatten)]
    pub place: ClusterArgs,
}
