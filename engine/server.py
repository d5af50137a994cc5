"""The engine process from inside: commands between steps, load, pause, and the step loop."""

from __future__ import annotations

import queue
from collections.abc import Callable
from dataclasses import asdict, replace

from engine import messages as m
from engine.built import BuiltEngine
from engine.errors import UserError
from engine.load_control import LoadControl
from engine.pace import PaceMeter
from engine.request import Request, SamplingParams
from engine.schedulers import SCHEDULERS
from engine.workloads import WORKLOADS
from engine.workloads.prompts import PromptSource
from engine.workloads.workload import item_rng
from telemetry.clock import sleep_s

_IDLE_LOOK_S = 1.0


class EngineServer:
    """Runs until Shutdown. Replies leave through `reply`."""

    def __init__(
        self,
        built: BuiltEngine,
        commands: queue.SimpleQueue[m.Command],
        reply: Callable[[m.Reply], None],
    ) -> None:
        self.engine, self._built = built.engine, built
        self._commands, self._reply = commands, reply
        self._clock = built.engine.clock
        self._prompts = PromptSource(built.tokenizer)
        self._injected = 0
        self._load = LoadControl(
            self._prompts,
            built.spec.max_context,
            self._clock,
            as_recorded=built.as_recorded,
        )
        self._paused = self._stopping = False
        self._single_steps = 0
        self._pace = PaceMeter(self._clock) if self._clock.paced else None

    def ready(self) -> m.Ready:
        """What the owner needs to know before the first step."""
        queue_, spec, tokenizer = self.engine.queue, self._built.spec, self._built.tokenizer
        sizes = {k: v for k, v in asdict(spec).items() if k != "name"}
        return m.Ready(
            run=asdict(self._built.run),
            tokenizer_json=tokenizer.to_json(),
            eos_token_ids=tokenizer.eos_token_ids,
            model={"name": spec.name, "total_params": spec.total_params, **sizes},
            limits={
                "max_context": spec.max_context,
                "kv_blocks": queue_.blocks.num_blocks,
                "kv_blocks_capacity": queue_.blocks.capacity,
                "block_size": queue_.blocks.block_size,
                "max_batch": queue_.max_batch,
            },
            schedulers=tuple(SCHEDULERS),
            workloads=tuple(WORKLOADS),
        )

    def run(self) -> None:
        """The loop of the engine's thread."""
        self._reply(self.ready())
        self._send_status()
        while not self._stopping:
            self._take_commands()
            if self._paused:
                self._paused_turn()
                continue
            self._admit_load()
            if not self.engine.step():
                self._wait()
            self._check_done()
            self._tell_pace()

    def _tell_pace(self) -> None:
        pace = self._pace.look() if self._pace else None
        if pace is not None:
            self._reply(pace)

    # --- waiting ---

    def _take_commands(self) -> None:
        """In order: a single step that was asked for runs before what was asked for after it."""
        while not self._single_steps and not self._commands.empty():
            self._handle(self._commands.get())

    def _wait(self) -> None:
        """Nothing can run: sleep until a command, an arrival or the scheduler's window."""
        times = [self._load.next_arrival_ns(), self.engine.scheduler.wake_ns()]
        due = [t for t in times if t is not None]
        if self._load.done is not None:
            return
        timeout_s = self._clock.until_s(min(due)) if due else _IDLE_LOOK_S
        command = self._hear(min(timeout_s, _IDLE_LOOK_S)) if timeout_s > 0 else None
        self._clock.idled(min(due, default=None))
        if command is not None:
            self._handle(command)

    def _hear(self, timeout_s: float) -> m.Command | None:
        try:
            return self._commands.get(timeout=timeout_s)
        except queue.Empty:
            return None

    def _paused_turn(self) -> None:
        if not self._single_steps:
            command = self._commands.get()
            self._clock.idled(None)
            self._handle(command)
            return
        self._single_steps -= 1
        self._resume(single_step=True)
        self._admit_load()
        if not self.engine.step():
            self._step_after_window()
        self._pause(single_step=True)

    def _step_after_window(self) -> None:
        """A scheduler that waits for more requests would let a single step do nothing."""
        wake_ns = self.engine.scheduler.wake_ns()
        if wake_ns is not None:
            sleep_s(max(0.0, self._clock.until_s(wake_ns)))
            self._clock.idled(wake_ns)
            self.engine.step()

    # --- load ---

    def _admit_load(self) -> None:
        for request in self._load.due():
            try:
                self._load.submitted(self.engine.submit(request))
            except UserError as error:
                self._reply(m.Rejected("Load", f"a request of the workload was left out: {error}"))

    def request_ended(self, request_id: int) -> None:
        """Called as tokens leave the engine."""
        self._load.ended(request_id)

    def _check_done(self) -> None:
        done = self._load.done
        if done is not None:
            self._load.stop()
            self._reply(m.LoadDone(done))
            self._send_status()

    # --- commands ---

    def _handle(self, command: m.Command) -> None:
        try:
            self._dispatch(command)
        except UserError as error:
            self._refuse(command, str(error))

    def _dispatch(self, command: m.Command) -> None:
        match command:
            case m.Submit():
                arrived_ns = self._clock.at(command.request.arrived_ns)
                self._submit(command.ticket, replace(command.request, arrived_ns=arrived_ns))
            case m.SubmitText():
                self._submit(command.ticket, self._request(command))
            case m.Inject():
                self._inject(command)
            case m.Cancel():
                self.engine.cancel(command.request_id)
            case m.Configure():
                changes = {k: v for k, v in asdict(command).items() if v is not None}
                self.engine.configure(**changes)
                self._send_status()
            case m.Load():
                self.start_load(command)
            case m.StopLoad():
                withdrawn = self._withdraw(self._load.stop())
                self.engine.event("load", {"workload": None, "withdrawn": withdrawn})
                self._send_status()
            case m.Pause():
                self._pause()
            case m.Resume():
                self._resume()
            case m.StepOnce():
                self._single_steps += self._paused
            case m.Mark():
                self.engine.event(command.kind, command.detail)
            case m.Shutdown():
                self._stopping = True

    def _refuse(self, command: m.Command, why: str) -> None:
        if isinstance(command, m.Submit | m.SubmitText):
            self._reply(m.Refused(command.ticket, why))
        else:
            self._reply(m.Rejected(type(command).__name__, why))

    def _submit(self, ticket: str, request: Request) -> None:
        self._reply(m.Accepted(ticket, self.engine.submit(request)))

    def _request(self, command: m.SubmitText) -> Request:
        """A person's text through the chat template, as long an answer as the context allows."""
        ids = self._built.tokenizer.encode_chat(command.text)
        room = max(1, self._built.spec.max_context - len(ids))
        sampling = SamplingParams(
            max_tokens=min(command.max_tokens, room),
            temperature=command.temperature,
            top_p=command.top_p,
            seed=command.seed,
            stop=command.stop,
        )
        return Request(tuple(ids), sampling, self._clock.at(command.arrived_ns), "prompt")

    def _inject(self, command: m.Inject) -> None:
        """Each prompt is another cut of the texts, so that the prefix cache never has it."""
        if command.prompt_tokens < 1:
            raise UserError(f"prompt tokens is {command.prompt_tokens}: use 1 or more")
        limit = self._built.spec.max_context
        if command.prompt_tokens > limit:  # before a prompt of an absurd length is built
            raise UserError(f"prompt tokens is {command.prompt_tokens}: use 1 to {limit}")
        rng = item_rng(0, "inject", self._injected)
        prompt = self._prompts.cut(command.prompt_tokens, rng)
        sampling = SamplingParams(max_tokens=command.max_tokens, ignore_eos=True)
        arrived_ns = self._clock.at(command.arrived_ns)
        request_id = self.engine.submit(Request(prompt, sampling, arrived_ns, "inject"))
        self._injected += 1
        detail = {"request_id": request_id, "prompt_tokens": command.prompt_tokens}
        self.engine.event("inject", detail, arrived_ns)

    def start_load(self, load: m.Load) -> None:
        """Replace the load. Raises UserError before anything changes."""
        withdrawn = self._withdraw(self._load.start(load))
        self.engine.event("load", {**self._load.settings, "withdrawn": withdrawn})
        self._send_status()

    def _withdraw(self, unfinished: list[int]) -> int:
        """Cancel those of a load's requests that still wait; those that run go on."""
        return sum(self.engine.withdraw(request_id) for request_id in unfinished)

    def _pause(self, *, single_step: bool = False) -> None:
        if self._paused:
            return
        self._admit_load()  # what has arrived by now arrived before the pause
        now = self._clock.now_ns()
        self._paused = True
        self._load.pause(now)
        self.engine.idle()
        self.engine.event("pause", {"single_step": single_step}, now)
        self._send_status()

    def _resume(self, *, single_step: bool = False) -> None:
        if not self._paused:
            return
        now = self._clock.now_ns()
        self._paused = False
        self._load.resume(now)
        self.engine.event("resume", {"single_step": single_step}, now)
        if not single_step:
            self._single_steps = 0
            self._send_status()

    def _send_status(self) -> None:
        queue_ = self.engine.queue
        self._reply(
            m.Status(
                scheduler=self.engine.scheduler.name,
                max_batch=queue_.max_batch,
                chunk_tokens=queue_.chunk_tokens,
                prefix_cache=queue_.blocks.prefix_cache,
                kv_blocks=queue_.blocks.num_blocks,
                paused=self._paused,
                load=self._load.load,
            )
        )
