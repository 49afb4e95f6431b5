//! The named tokens of the cluster, in the metadata store, and the copy that this host checks.

use std::sync::Arc;
use std::time::Duration;

use ardea_core::{Error, ErrorCode, Result};
use ardea_metastore::{Expected, MetadataStore, layout};
use ardea_rest::{
    MAX_TOKENS, NewTokenView, Pending, StoredToken, TokenRegistry, TokenRequest, TokenStore,
    TokenView, create_token,
};

use crate::leader::now_ms;

/// Time after which the tokens are read again without a change.
const REFRESH_INTERVAL: Duration = Duration::from_secs(30);

/// Time until the metadata store is asked again after an error.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// The named tokens of the cluster. Each is a node of the metadata store, whose name is the
/// digest of the secret, so that a token that is created again is another node.
#[derive(Clone, Debug)]
pub(crate) struct NamedTokenStore {
    state: Arc<dyn MetadataStore>,
    registry: Arc<TokenRegistry>,
}

impl NamedTokenStore {
    pub(crate) fn new(state: Arc<dyn MetadataStore>) -> Self {
        NamedTokenStore {
            state,
            registry: Arc::default(),
        }
    }

    /// Returns the copy that this host checks.
    pub(crate) fn registry(&self) -> Arc<TokenRegistry> {
        Arc::clone(&self.registry)
    }

    /// Reads all tokens. A damaged node is no token.
    async fn stored(&self) -> Result<Vec<StoredToken>> {
        let mut stored = Vec::new();
        for name in self.state.children(&layout::tokens()?).await? {
            let node = match self.state.get(&layout::token(&name)?).await {
                Err(error) if error.code() == ErrorCode::MetastoreCorrupt => None,
                node => node?,
            };
            let token = node.and_then(|node| serde_json::from_slice(&node.value).ok());
            stored.extend(token.filter(|it: &StoredToken| it.digest == name));
        }
        stored.sort_by(|one, other| one.token.name.cmp(&other.token.name));
        Ok(stored)
    }

    /// Reads all tokens into the copy of this host.
    ///
    /// # Errors
    /// If the metadata store does not answer; the copy is unchanged then.
    pub(crate) async fn refresh(&self) -> Result<()> {
        self.registry.replace(self.stored().await?);
        Ok(())
    }

    /// Keeps the copy of this host up to date, forever. While the metadata store is unavailable,
    /// the last copy counts.
    pub(crate) async fn follow(self) {
        loop {
            let followed = self.follow_until_error().await;
            if followed.is_err() {
                tokio::time::sleep(RETRY_DELAY).await;
            }
        }
    }

    async fn follow_until_error(&self) -> Result<()> {
        let mut watcher = self.state.watch_children(&layout::tokens()?).await?;
        loop {
            let changed = tokio::time::timeout(REFRESH_INTERVAL, watcher.next()).await;
            if let Ok(changed) = changed {
                changed?;
            }
            self.refresh().await?;
        }
    }

    async fn create(&self, request: TokenRequest) -> Result<NewTokenView> {
        let (stored, new) = create_token(request, now_ms())?;
        let known = self.stored().await?;
        let name = &stored.token.name;
        if known.iter().any(|it| it.token.name == *name) {
            let what = format!("there is a token {name:?} already");
            let error = Error::new(ErrorCode::NameTaken, what);
            return Err(error.hint("choose another name, or revoke that token first"));
        }
        if known.len() >= MAX_TOKENS {
            let what = format!("the cluster has {MAX_TOKENS} tokens already");
            let error = Error::new(ErrorCode::LimitReached, what);
            return Err(error.hint("revoke tokens that have expired: ardea token list"));
        }
        let value = serde_json::to_vec(&stored).map_err(|error| {
            Error::new(ErrorCode::Internal, "a token can't be encoded").because(error)
        })?;
        let path = layout::token(&stored.digest)?;
        self.state.set(&path, &value, Expected::Absent).await?;
        self.refresh().await?;
        Ok(new)
    }

    async fn revoke(&self, name: &str) -> Result<()> {
        let known = self.stored().await?;
        let named: Vec<&StoredToken> = known.iter().filter(|it| it.token.name == name).collect();
        if named.is_empty() {
            let what = format!("there is no token {name:?}");
            let error = Error::new(ErrorCode::NoSuchEntry, what);
            return Err(error.hint("ardea token list shows the tokens"));
        }
        // Two that were created at the same moment may have one name.
        for token in named {
            let path = layout::token(&token.digest)?;
            self.state.delete(&path, Expected::Any).await?;
        }
        self.refresh().await
    }
}

impl TokenStore for NamedTokenStore {
    fn create_token(&self, request: TokenRequest) -> Pending<'_, NewTokenView> {
        Box::pin(async move { Ok(self.create(request).await?) })
    }

    fn list_tokens(&self) -> Pending<'_, Vec<TokenView>> {
        Box::pin(async move {
            let stored = self.stored().await?.into_iter();
            Ok(stored.map(|stored| stored.token).collect())
        })
    }

    fn revoke_token<'a>(&'a self, name: &'a str) -> Pending<'a, ()> {
        Box::pin(async move { Ok(self.revoke(name).await?) })
    }
}

#[cfg(test)]
mod tests {
    use ardea_metastore::{FileState, StateOptions};
    use ardea_rest::{AccessRole, TokenCheck};

    use super::*;

    fn request(name: &str) -> TokenRequest {
        TokenRequest {
            name: name.into(),
            role: AccessRole::Operator,
            may_upload: true,
            expires_in_s: None,
        }
    }

    #[tokio::test]
    async fn a_token_is_accepted_by_another_host_until_it_is_revoked() {
        let folder = tempfile::tempdir().unwrap();
        let open = async || {
            let state = FileState::open(folder.path(), StateOptions::default()).await;
            NamedTokenStore::new(Arc::new(state.unwrap()))
        };
        let (one, other) = (open().await, open().await);
        let following = tokio::spawn(other.clone().follow());
        let new = one.create(request("ci")).await.unwrap();
        let is_valid = |tokens: &NamedTokenStore| {
            let check = tokens.registry.check(&new.secret, now_ms());
            matches!(check, TokenCheck::Valid(token) if token.name == "ci")
        };
        assert!(is_valid(&one));
        while !is_valid(&other) {
            tokio::task::yield_now().await;
        }
        let taken = one.create(request("ci")).await.unwrap_err();
        assert_eq!(taken.code(), ErrorCode::NameTaken);
        one.revoke("ci").await.unwrap();
        assert!(!is_valid(&one));
        while is_valid(&other) {
            tokio::task::yield_now().await;
        }
        let gone = one.revoke("ci").await.unwrap_err();
        assert_eq!(gone.code(), ErrorCode::NoSuchEntry);
        // The same name again has another secret.
        let again = one.create(request("ci")).await.unwrap();
        assert_ne!(again.secret, new.secret);
        assert!(!is_valid(&one));
        following.abort();
    }
}
