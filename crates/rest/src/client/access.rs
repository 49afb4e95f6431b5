//! The requests about tokens and the audit log.

use ardea_core::Result;

use super::Client;
use super::request::{ApiRequest, encoded};
use crate::{AuditQuery, AuditView, NewTokenView, TokenRequest, TokenView};

impl Client {
    /// Creates a named token. Not repeated, because a token that is not returned is of no use.
    pub async fn create_token(&self, request: &TokenRequest) -> Result<NewTokenView> {
        let asked = ApiRequest::post("/v1/tokens".into()).json(request)?;
        self.ask(asked).await?.json().await
    }

    /// Returns the named tokens, sorted by name.
    pub async fn tokens(&self) -> Result<Vec<TokenView>> {
        self.get("/v1/tokens".into()).await
    }

    /// Revokes a named token.
    pub async fn revoke_token(&self, name: &str) -> Result<()> {
        let path = format!("/v1/tokens/{}", encoded(name));
        self.command(ApiRequest::delete(path)).await
    }

    /// Returns the latest actions on the host of this client, at most `limit`.
    pub async fn audit(&self, limit: u32) -> Result<AuditView> {
        let query = AuditQuery { limit: Some(limit) };
        let asked = ApiRequest::get("/v1/audit".into()).query(&query)?;
        self.ask(asked).await?.json().await
    }
}
