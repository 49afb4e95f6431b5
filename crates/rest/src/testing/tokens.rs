//! The named tokens of a fake cluster. They open no server.

use ardea_core::{Error, ErrorCode};

use super::FakeCluster;
use crate::access::now_ms;
use crate::{Answer, NewTokenView, Pending, TokenRequest, TokenStore, TokenView, create_token};

impl FakeCluster {
    fn add_token(&self, request: TokenRequest) -> Answer<NewTokenView> {
        let (stored, new) = create_token(request, now_ms())?;
        let mut state = self.state();
        if state.tokens.contains_key(&stored.token.name) {
            let what = format!("there is a token {:?} already", stored.token.name);
            return Err(Error::new(ErrorCode::NameTaken, what).into());
        }
        state.tokens.insert(stored.token.name.clone(), stored.token);
        Ok(new)
    }
}

impl TokenStore for FakeCluster {
    fn create_token(&self, request: TokenRequest) -> Pending<'_, NewTokenView> {
        ready_result(self.add_token(request))
    }

    fn list_tokens(&self) -> Pending<'_, Vec<TokenView>> {
        ready_result(Ok(self.state().tokens.values().cloned().collect()))
    }

    fn revoke_token<'a>(&'a self, name: &'a str) -> Pending<'a, ()> {
        let removed = self.state().tokens.remove(name);
        ready_result(removed.map(drop).ok_or_else(|| {
            let what = format!("there is no token {name:?}");
            Error::new(ErrorCode::NoSuchEntry, what).into()
        }))
    }
}

/// Returns a future that is ready.
pub(super) fn ready_result<'a, T: Send + 'a>(answer: Answer<T>) -> Pending<'a, T> {
    Box::pin(std::future::ready(answer))
}
