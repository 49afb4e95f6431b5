// Modal dialogs: the confirmation of an action, and the entry of a token.

import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { RequestError } from "../api/client";
import { ErrorBox } from "./basics";

/** A native modal dialog: it holds the focus, and Escape closes it. */
export function Dialog(props: { title: string; onClose: () => void; children: ComponentChildren }) {
  const element = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const dialog = element.current;
    if (dialog === null) return undefined;
    dialog.showModal();
    return () => dialog.close();
  }, []);
  return (
    <dialog ref={element} aria-labelledby="dialog-title" onCancel={props.onClose} onClose={props.onClose}>
      <h2 id="dialog-title">{props.title}</h2>
      {props.children}
    </dialog>
  );
}

/** An action: one that is confirmed, or one with a dialog of its own. */
export type Action = Confirmation | { dialog: (onClose: () => void) => ComponentChildren };

export interface Confirmation {
  title: string;
  /** Consequences of the action. */
  text: ComponentChildren;
  confirm: string;
  isDangerous?: boolean;
  fields?: ComponentChildren;
  /** Carries out the action; a returned text is shown before the dialog closes. */
  run: () => Promise<string | void>;
}

/** Shows the dialog of an action. */
export function ActionDialog({ action, onClose }: { action: Action; onClose: () => void }) {
  return "dialog" in action ? <>{action.dialog(onClose)}</> : <ConfirmationDialog action={action} onClose={onClose} />;
}

/** Asks for a confirmation, carries out an action, and shows its failure. */
function ConfirmationDialog({ action, onClose }: { action: Confirmation; onClose: () => void }) {
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState<RequestError | null>(null);
  const [done, setDone] = useState<string | null>(null);
  const submit = async (event: Event) => {
    event.preventDefault();
    setBusy(true);
    setError(null);
    try {
      const result = await action.run();
      if (typeof result === "string") setDone(result);
      else onClose();
    } catch (failure) {
      setError(failure instanceof RequestError ? failure : new RequestError("", String(failure)));
    }
    setBusy(false);
  };
  return (
    <Dialog title={action.title} onClose={onClose}>
      <form onSubmit={submit}>
        <div class="dialog-text">{action.text}</div>
        {action.fields}
        {error !== null && <ErrorBox error={error} />}
        {done !== null && <p role="status">{done}</p>}
        <div class="buttons">
          <button type="button" onClick={onClose}>
            {done === null ? "Cancel" : "Close"}
          </button>
          {done === null && (
            <button type="submit" class={action.isDangerous ? "danger" : "primary"} disabled={isBusy}>
              {isBusy ? "…" : action.confirm}
            </button>
          )}
        </div>
      </form>
    </Dialog>
  );
}

/** Asks for the token of the cluster. It stays in this tab. */
export function TokenDialog({ onToken, onClose }: { onToken: (secret: string) => void; onClose: () => void }) {
  const [secret, setSecret] = useState("");
  const submit = (event: Event) => {
    event.preventDefault();
    if (secret.trim() !== "") onToken(secret.trim());
  };
  return (
    <Dialog title="Token" onClose={onClose}>
      <form onSubmit={submit}>
        <p class="dialog-text">
          The cluster requires a token. It is kept in this tab only, until the tab is closed.
        </p>
        <label class="field">
          Token
          <input
            type="password"
            autocomplete="off"
            value={secret}
            onInput={(event) => setSecret(event.currentTarget.value)}
          />
        </label>
        <div class="buttons">
          <button type="button" onClick={onClose}>
            Cancel
          </button>
          <button type="submit" class="primary">
            Use the token
          </button>
        </div>
      </form>
    </Dialog>
  );
}
