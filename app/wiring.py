"""Joins the parts: one engine process, one store, and what people asked of them."""

from __future__ import annotations

import os
import threading
import uuid
from collections import deque
from pathlib import Path
from typing import Any, Literal

from app.answers import Answer, Decoder, Texts
from app.ramp import Ramp, Ramps
from app.serve_config import (
    SERVE_VARIABLE,
    ServeConfig,
    default_cpu_config,
    default_serve_config,
)
from app.token_buffer import TokenBuffer
from app.token_text import TokenText
from engine import messages as m
from engine.config import EngineConfig
from engine.errors import UserError
from engine.modelled_setup import modelled_setup
from engine.process import EngineClient, Listener
from telemetry.clock import now_ns
from telemetry.envelope import decode_envelope
from telemetry.errors import StoreError
from telemetry.inserts import Tables
from telemetry.schema import RunRecord
from telemetry.store import Store

_ENGINE_MODULE = "app.engine_main"
_ANSWERS_KEPT = 50


class Session:
    """One engine at a time, with its recording. Methods may be called from any thread."""

    def __init__(self, config: EngineConfig, db: Path | None, load: m.Load | None = None) -> None:
        """Raises StoreError if the database cannot be used."""
        self.store = Store(db)
        self._changed = threading.Condition()
        self._replacing = threading.Lock()
        self._tokens = TokenBuffer(self.record)
        self._ramps = Ramps(self._send_streams, self._is_paused)
        self.cpu_config = default_cpu_config()
        self._forget()
        self._client = self._start(config, load)

    def _forget(self) -> None:
        """Nothing has been heard from the engine yet."""
        self.phase: Literal["starting", "ready", "failed"] = "starting"
        self.progress: m.Progress | None = None
        self.failure: str | None = None
        self.user_error = False
        self.ready: m.Ready | None = None
        self.status: m.Status | None = None
        self.pace: m.Pace | None = None
        self.run_id: str | None = None
        self.last_ticket: str | None = None
        self.load_done: m.LoadDone | None = None
        self.finished_requests = 0
        self.rejections: deque[m.Rejected] = deque(maxlen=20)
        self._no_more_replies = False
        self._answers: dict[str, Answer] = {}
        self._texts = Texts()
        self.token_text: TokenText | None = None

    def _start(self, config: EngineConfig, load: m.Load | None) -> EngineClient:
        self.started_with = m.Start(config, load)
        if not config.modelled:
            self.cpu_config = config  # what a way back from a modelled run leads to
        listener = Listener(
            self._heard, self._heard_tokens, self._heard_telemetry, self._heard_last_reply
        )
        client = EngineClient(self.started_with, listener, _ENGINE_MODULE)
        threading.Thread(
            target=self._watch, args=(client,), name="engine-watch", daemon=True
        ).start()
        return client

    def new_run(self, config: EngineConfig, load: m.Load | None) -> None:
        """End the engine and start another: what ran becomes a past run of the same recording.

        Returns at once; phase tells the rest. Raises UserError, with nothing changed, for what
        cannot run and while another change of engines is under way.
        """
        if config.modelled:
            modelled_setup(config)
        if not self._replacing.acquire(blocking=False):
            raise UserError("another run is being started: wait until it is there")
        self._ramps.end()
        with self._changed:
            self.phase, self.status, self.failure = "starting", None, None
            self.progress = m.Progress("ending the run before")
            self._changed.notify_all()
        threading.Thread(target=self._replace, args=(config, load), name="new-run").start()

    def _replace(self, config: EngineConfig, load: m.Load | None) -> None:
        """The run's last records are in the store before anything of the next one is heard."""
        try:
            self.end_engine()
            with self._changed:
                self._forget()
                self._client = self._start(config, load)
        except Exception as error:
            with self._changed:
                self._fail(f"no new run could be started: {error}", user_error=False)
        finally:
            self._replacing.release()

    # --- what pages and the command line do ---

    @property
    def engine_pid(self) -> int:
        return self._client.pid

    def submit_text(
        self,
        text: str,
        max_tokens: int = 128,
        temperature: float = 0.0,
        seed: int | None = None,
        *,
        top_p: float = 1.0,
        stop: tuple[str, ...] = (),
    ) -> str:
        """A person's prompt; the ticket that `answer` takes."""
        ticket = uuid.uuid4().hex
        with self._changed:
            self._answers[ticket] = Answer(text)
            while len(self._answers) > _ANSWERS_KEPT:
                self._answers.pop(next(iter(self._answers)))
            self._texts.expect(ticket, stop)
            self.last_ticket = ticket
        self._send(m.SubmitText(ticket, text, now_ns(), max_tokens, temperature, top_p, seed, stop))
        return ticket

    def inject(self, prompt_tokens: int, max_tokens: int = 8) -> None:
        """A synthetic prompt among those that run (see rejections for one that cannot)."""
        self._send(m.Inject(prompt_tokens, now_ns(), max_tokens))

    def answer(self, ticket: str) -> Answer | None:
        """The answer so far; None for a ticket that is not known (any more)."""
        with self._changed:
            answer = self._answers.get(ticket)
            if answer is not None and answer.request_id is not None:
                answer.text = self._texts.text(ticket) or answer.text
            return answer

    def cancel(self, ticket: str) -> None:
        """A ticket that the engine has not accepted yet is cancelled as soon as it has."""
        answer = self.answer(ticket)
        if answer is None or answer.done:
            return
        answer.cancelled = True
        if answer.request_id is not None:
            self._send(m.Cancel(answer.request_id))

    def configure(
        self,
        scheduler: str | None = None,
        max_batch: int | None = None,
        chunk_tokens: int | None = None,
        prefix_cache: bool | None = None,
        kv_blocks: int | None = None,
    ) -> None:
        """Change what is not None: all of it between two steps, or nothing (see rejections)."""
        self._send(m.Configure(scheduler, max_batch, chunk_tokens, prefix_cache, kv_blocks))

    def load(
        self,
        workload: str,
        concurrency: int | None = None,
        rate: float | None = None,
        requests: int | None = None,
        seed: int = 0,
    ) -> None:
        self._ramps.end()
        self._send(m.Load(workload, concurrency, rate, requests, seed))

    def ramp(self, ramp: Ramp) -> None:
        """Streams that grow by themselves, until anybody commands the load."""
        self._ramps.start(ramp)

    def stop_load(self) -> None:
        self._ramps.end()
        self._send(m.StopLoad())

    def pause(self) -> None:
        self._send(m.Pause())

    def resume(self) -> None:
        self._send(m.Resume())

    def step_once(self) -> None:
        self._send(m.StepOnce())

    def mark(self, kind: str, detail: dict[str, Any]) -> None:
        """An event on the engine's clock, after what was asked before it."""
        self._send(m.Mark(kind, detail))

    def wait(self, timeout_s: float | None = None) -> None:
        """Until something was heard from the engine."""
        with self._changed:
            self._changed.wait(timeout_s)

    def end_engine(self) -> None:
        """End the engine; everything it recorded is in the store when this returns."""
        self._client.close()
        self._tokens.flush()
        self.store.flush()

    def close(self) -> None:
        """End the engine and close the database."""
        self._ramps.end()
        with self._replacing:
            try:
                self.end_engine()
            finally:
                self.store.close()

    # --- what the engine says ---

    def _send(self, command: m.Command) -> None:
        try:
            self._client.send(command)
        except OSError:
            if self._replacing.locked():
                return  # it was meant for an engine that is ending
            with self._changed:
                self._fail("the engine has ended; restart Stepscope", user_error=False)

    def _send_streams(self, workload: str, streams: int) -> None:
        self._send(m.Load(workload, concurrency=streams))

    def _is_paused(self) -> bool:
        status = self.status
        return status is None or status.paused

    def _heard(self, reply: m.Reply) -> None:
        if isinstance(reply, m.Ready):
            self._begin_run(reply)
        with self._changed:
            match reply:
                case m.Progress():
                    self.progress = reply
                case m.Ready():
                    pass  # see _begin_run
                case m.Failed():
                    self._fail(reply.message, user_error=reply.user_error)
                case m.Status():
                    self.status = reply
                case m.LoadDone():
                    self.load_done = reply
                case m.Pace():
                    self.pace = reply
                case m.Rejected():
                    self.rejections.append(reply)
                case m.Accepted() | m.Refused():
                    self._admitted(reply)
            self._changed.notify_all()

    def _begin_run(self, ready: m.Ready) -> None:
        """Telemetry waits for the run that it belongs to (see `record`)."""
        try:
            run_id = self.store.start_run(RunRecord(**ready.run))
        except StoreError as error:
            with self._changed:
                self._fail(str(error), user_error=True)
            return
        decoder = Decoder(ready.tokenizer_json)
        self._texts.decoder, self.token_text = decoder, TokenText(decoder)
        with self._changed:
            self.ready, self.run_id, self.phase = ready, run_id, "ready"

    def _admitted(self, reply: m.Accepted | m.Refused) -> None:
        answer = self._answers.get(reply.ticket, Answer(""))
        if isinstance(reply, m.Refused):
            self._texts.refused(reply.ticket)
            answer.error, answer.done, answer.reason = reply.message, True, "refused"
        else:
            self._texts.accepted(reply.ticket, reply.request_id)
            answer.request_id = reply.request_id
            if answer.cancelled:
                self._send(m.Cancel(reply.request_id))
            self._close_answers()

    def _fail(self, message: str, *, user_error: bool) -> None:
        if self.phase in ("starting", "ready"):
            self.phase, self.failure, self.user_error = "failed", message, user_error
        self._changed.notify_all()

    def _heard_tokens(self, messages: list[m.TokenMessage]) -> None:
        with self._changed:
            for message in messages:
                self.finished_requests += len(message.finished)
                self._texts.heard(message)
            self._close_answers()
        self._tokens.add(messages)

    def _close_answers(self) -> None:
        for ticket, reason in self._texts.take_finished():
            answer = self._answers.get(ticket, Answer(""))
            answer.text = self._texts.take_text(ticket)
            answer.done, answer.reason = True, reason

    def _heard_last_reply(self) -> None:
        with self._changed:
            self._no_more_replies = True
            self._changed.notify_all()

    def _heard_telemetry(self, payload: bytes) -> None:
        # One transaction for both: a commit costs more than the rows in it.
        self.record({**decode_envelope(payload).tables, **self._tokens.take()})

    def record(self, tables: Tables) -> None:
        """Store rows under the run's id, which may be heard after them.

        Rows of an engine that ended before it named its run belong to no run, and are left out.
        """
        with self._changed:
            self._changed.wait_for(lambda: self.run_id is not None or self._no_more_replies)
        if self.run_id is not None:
            self.store.append(self.run_id, tables)
        if self.store.failure is not None:
            with self._changed:
                self._fail(str(self.store.failure), user_error=True)

    def _watch(self, client: EngineClient) -> None:
        client.drain()
        with self._changed:
            code = client.exit_code
            if code != 0 and not client.closing:
                message = f"the engine ended by itself (exit code {code}); restart Stepscope"
                self._fail(message, user_error=False)
            self._changed.notify_all()


def session_from_env() -> Session:
    """The session that the command line asked for; the defaults when started by hand."""
    text = os.environ.get(SERVE_VARIABLE)
    config = ServeConfig.from_environment(text) if text else default_serve_config()
    return Session(config.engine, Path(config.db) if config.db else None, config.load)


__all__ = ["Answer", "ServeConfig", "Session", "UserError", "session_from_env"]
