"""A simulated world for the transfer machine: workers, memory, connectors and a link that loses, doubles and reorders.

Everything that happens is one step, and each step is decided by one integer, so a schedule is a list of integers, any
part of it is a schedule too, and a failing one can be shrunk by leaving steps out.  Memory holds one value per digest
unit; a digest is the value itself, so equal digests mean equal bytes.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import msgspec

from octavo.transfer.machine.action import (
    Action,
    Begin,
    Cancel,
    Commit,
    Free,
    GiveUp,
    Lookup,
    Read,
    Send,
    SetEpoch,
    StopReads,
)
from octavo.transfer.machine.consumer import Consumer
from octavo.transfer.machine.noun import Incoming, Reason, Source
from octavo.transfer.machine.producer import Producer
from octavo.transfer.message import PEER, ConsumerEnd, Hello, Page, ProducerEnd, Status, ToProducer
from transfer_node import LIMITS, MESSAGE_LIFE_S, NUM_BLOCKS, UNIT, Chunk, Job, Message, Node, check


class World:
    """Two producers (`p`: has the request, `q`: holds some of its blocks) and a consumer `c`."""

    def __init__(
        self,
        seed: int,
        producer_class: type[Producer] = Producer,
        consumer_class: type[Consumer] = Consumer,
        has_faults: bool = True,
    ) -> None:
        self.rng = random.Random(seed)
        self.seed, self.has_faults = seed, has_faults
        self.classes = (producer_class, consumer_class)
        self.now_s = 100.0
        self.num_groups = self.rng.choice((1, 1, 2))
        self.nodes = {name: Node(name, self.rng.choice((16, 32, 64)), self.num_groups, self.classes) for name in "pqc"}
        self.bad_sender = self.rng.choice(("", "", "", "p", "q")) if has_faults else ""
        self.is_two_sided = {"p": self.rng.random() < 0.5, "q": self.rng.random() < 0.5}
        self.graveyard: dict[str, Node] = {}
        self.link: list[Message] = []
        self.jobs: list[Job] = []
        self.num_transfers = 0
        self.outcomes: dict[str, list[str]] = {}
        self.ends: dict[tuple[str, str], set[tuple[str, str]]] = {}
        self.consumer_ends: dict[tuple[str, str], set[tuple[str, str]]] = {}
        self.hellos: set[tuple[str, str, str]] = set()
        self.begun: set[tuple[str, str]] = set()
        self.is_settling = False
        self.has_room: set[str] = set()
        self.is_prompt: set[str] = set()

    # --- what can happen ---------------------------------------------------------------------------------------------

    def step(self, number: int) -> None:
        """Do the one thing that `number` decides."""
        self.rng = random.Random(number)
        kinds = [self.deliver] * 8 + [self.copy] * 8 + [self.serve] * 6 + [self.fill] * 4 + [self.wait] * 4
        kinds += [self.begin] * 2 + [self.allocate, self.end_sequence, self.scribble, self.scribble]
        if self.has_faults:
            kinds += [
                self.lose,
                self.double,
                self.corrupt,
                self.abort,
                self.abort_read,
                self.break_node,
                self.wait_long,
            ]
        self.rng.choice(kinds)()
        for node in self.nodes.values():
            node.producer.check_integrity()
            node.consumer.check_integrity()

    def running(self, name: str) -> Node | None:
        node = self.nodes[name]
        return node if node.stopped_until_s <= self.now_s else None

    def deliver(self) -> None:
        ready = [i for i, m in enumerate(self.link) if self.running(m.to)]
        if not ready:
            return
        carried = self.link.pop(self.rng.choice(ready) if self.has_faults else ready[0])
        node = self.nodes[carried.to]
        if node.terms.incarnation != carried.life or self.now_s - carried.sent_s > MESSAGE_LIFE_S:
            return  # that life of the worker is gone, and its address with it
        if isinstance(carried.frame, Chunk):
            self.take_chunk(node, carried.frame)
            return
        message = PEER.decode(carried.frame)
        machine: Any = node.producer if isinstance(message, ToProducer) else node.consumer
        self.run(node, machine.receive(message, self.now_s))

    def post(self, to: str, life: str, frame: bytes | Chunk) -> None:
        self.link.append(Message(to, life, frame, self.now_s))

    def lose(self) -> None:
        if self.link:
            self.link.pop(self.rng.randrange(len(self.link)))

    def double(self) -> None:
        if self.link:
            self.link.append(self.rng.choice(self.link))

    def corrupt(self) -> None:
        """Flip a byte in a frame, or in a page that is being copied."""
        carried = [m for m in self.link if isinstance(m.frame, Chunk) and m.frame.unit is not None]
        if carried:
            index = self.link.index(self.rng.choice(carried))
            bad = replace(self.link[index].frame, value=("bad", self.rng.random()))  # type: ignore[type-var]
            self.link[index] = replace(self.link[index], frame=bad)
            for job in self.jobs:
                job.is_corrupted |= job.order.read == bad.job.order.read
            return
        half_done = [j for j in self.jobs if not j.is_two_sided and j.got]
        if half_done:
            job = self.rng.choice(half_done)
            job.is_corrupted = True
            self.write(job, self.rng.choice(sorted(job.got)), ("bad", self.rng.random()))

    def begin(self) -> None:
        """A request comes: the prefill leg reserves, the decode leg plans.  Either may come first, or alone."""
        if len(self.nodes["c"].consumer.ledger) >= 3:
            return
        self.num_transfers += 1
        transfer_id = f"t{self.num_transfers}"
        num_tokens = self.rng.randrange(1, 100)
        if not self.has_faults or self.rng.random() < 0.9:
            self.reserve("p", transfer_id, num_tokens, is_request=True)
        if self.has_faults and self.rng.random() < 0.1:
            return
        node = self.running("c")
        if node is None:
            return
        have = self.rng.choice((0, 0, node.block_size)) if num_tokens > node.block_size else 0
        order = ["p"] if not self.has_faults else self.rng.choice((["p"], ["p", "q"], ["q", "p"], ["p", "p", "q"]))
        sources = [Source(n, self.nodes[n].terms.incarnation, f"rung{i}", n == "p") for i, n in enumerate(order)]
        transfer = Incoming(transfer_id, (transfer_id, 1), self.now_s)
        transfer.have_tokens, transfer.num_tokens = have, num_tokens
        transfer.hashes, transfer.deadline_s = (b"h",), self.now_s + 60
        transfer.is_partial = order[0] == "q" and self.rng.random() < 0.3
        node.num_total[transfer_id] = num_tokens
        self.outcomes[transfer_id] = []
        self.run(node, node.consumer.open(transfer, sources))

    def allocate(self) -> None:
        node = self.running("c")
        if node is None:
            return
        for transfer in node.consumer.ledger:
            if transfer.state.value == "planned":
                tables = node.allocate(transfer.transfer_id, transfer.num_tokens, self.rng)
                if tables is not None:
                    if self.now_s - transfer.opened_s < LIMITS.park_s:
                        self.is_prompt.add(transfer.transfer_id)
                    node.tables[transfer.transfer_id] = tables
                    for g, table in enumerate(tables):
                        for i in range(transfer.have_tokens // node.block_size):
                            num = node.block_size // UNIT
                            values = [self.value(transfer.transfer_id, g, i * num + u) for u in range(num)]
                            node.memory[table[i]] = values
                    self.run(node, node.consumer.allocated(transfer.transfer_id, self.now_s))
                return

    def end_sequence(self) -> None:
        node = self.nodes["c"]
        if node.published:
            transfer_id = self.rng.choice(sorted(node.published))
            self.check_published(node, transfer_id)
            del node.published[transfer_id]
            node.release(transfer_id)

    def scribble(self) -> None:
        self.rng.choice(list(self.nodes.values())).scribble(self.rng)

    def wait(self, most_s: float = 0.3) -> None:
        """Time passes; where nothing is broken, little enough for a peer to answer in time."""
        is_calm = not self.has_faults and not self.is_settling
        self.now_s += self.rng.random() * (0.01 if is_calm else most_s)
        for name in self.nodes:
            node = self.running(name)
            if node is not None:
                self.run(node, node.producer.tick(self.now_s))
                self.run(node, node.consumer.tick(self.now_s))

    def wait_long(self) -> None:
        self.wait(self.rng.choice((2.0, 8.0, 40.0)))

    def abort(self) -> None:
        """A request ends early at one side."""
        name = self.rng.choice("pc")
        node = self.running(name)
        if node is None:
            return
        if name == "p" and len(node.producer.ledger):
            transfer_id = self.rng.choice([t.transfer_id for t in node.producer.ledger])
            self.run(node, node.producer.fail(transfer_id, Reason.CANCELLED, self.now_s))
        if name == "c" and len(node.consumer.ledger):
            transfer_id = self.rng.choice([t.transfer_id for t in node.consumer.ledger])
            self.run(node, node.consumer.cancel(transfer_id, Reason.CANCELLED, self.now_s))

    def abort_read(self) -> None:
        """A producer ends a transfer whose pages are being read."""
        jobs = [j for j in self.jobs if self.nodes[j.source.split(".")[0]].terms.incarnation == j.source]
        if jobs:
            job = self.rng.choice(jobs)
            node = self.running(job.source.split(".")[0])
            if node is not None:
                self.run(node, node.producer.fail(job.wire_id, Reason.CANCELLED, self.now_s))

    def break_node(self) -> None:
        """A worker is stopped for a while, or dies and comes back as another incarnation."""
        name = self.rng.choice("pqc")
        node = self.nodes[name]
        if self.rng.random() < 0.6:
            node.stopped_until_s = self.now_s + self.rng.choice((1.0, 3.0, 20.0))
            return
        self.graveyard[node.terms.incarnation] = node
        self.jobs = [j for j in self.jobs if name != "c"]
        self.nodes[name] = Node(name, node.block_size, self.num_groups, self.classes, node.life + 1)
        self.link = [m for m in self.link if m.to != name]
        for other in self.nodes.values():
            if self.rng.random() < 0.5:
                life = self.nodes[name].terms.incarnation
                self.run(other, other.producer.void(name, life, self.now_s))
                self.run(other, other.consumer.void(name, life, self.now_s))

    # --- the producers' engines --------------------------------------------------------------------------------------

    @staticmethod
    def value(transfer_id: str, group: int, unit: int) -> tuple[str, int, int]:
        return (transfer_id.removesuffix("/hashes"), group, unit)

    def reserve(self, name: str, transfer_id: str, num_tokens: int, is_request: bool) -> None:
        node = self.running(name)
        if node is None:
            return
        tables = node.allocate(transfer_id, num_tokens, self.rng)
        if tables is None:
            return
        self.has_room.add(transfer_id)
        num = node.block_size // UNIT
        count = len(tables[0])
        pages = [Page(g, i, tables[g][i]) for i in range(count) for g in range(self.num_groups)]
        node.fills[transfer_id], node.num_total[transfer_id] = pages, num_tokens
        node.is_request[transfer_id] = is_request
        for page in pages:
            values = [self.value(transfer_id, page.group, page.index * num + u) for u in range(num)]
            node.memory[page.block] = values
        self.run(node, node.producer.reserve(transfer_id, (transfer_id, 1), self.now_s))

    def fill(self) -> None:
        name = self.rng.choice("pq")
        node = self.running(name)
        if node is None or not node.fills:
            return
        transfer_id = self.rng.choice(sorted(node.fills))
        pages = node.fills[transfer_id]
        count = self.rng.randrange(1, 4)
        self.run(node, node.producer.fill(transfer_id, pages[:count], self.now_s))
        del pages[:count]
        if not pages:
            del node.fills[transfer_id]
            payload = b"token 0" if node.is_request[transfer_id] else b""
            self.run(node, node.producer.finish(transfer_id, node.num_total[transfer_id], payload, self.now_s))

    # --- connectors --------------------------------------------------------------------------------------------------

    def start_read(self, node: Node, action: Read) -> None:
        source = action.pull.source
        job = Job(
            action.transfer_id,
            node.consumer.wire_id(node.consumer.ledger.get(action.transfer_id), source),  # type: ignore[arg-type]
            action.pull.pull_id,
            action.pull.epoch,
            action.pull.slot,
            action.order,
            source.incarnation,
            self.is_two_sided[source.worker_id],
            sorted(action.order.units),
            num_units=len(action.order.units),
        )
        self.jobs.append(job)
        if job.is_two_sided:
            self.post(source.worker_id, source.incarnation, Chunk(job, None))

    def source_of(self, job: Job) -> Node:
        """The memory of a dead life stays mapped for whoever maps it."""
        alive = self.nodes[job.source.split(".")[0]]
        return alive if alive.terms.incarnation == job.source else self.graveyard[job.source]

    def copy(self) -> None:
        """A one-sided connector begins or ends the copy of one more unit, or reads the epoch at the end.

        A copy that has begun cannot be taken back: a stopped read is over when it has ended.
        """
        node = self.running("c")
        jobs = [j for j in self.jobs if j.is_stopped or not j.is_two_sided]
        if node is None or not jobs:
            return
        job = self.rng.choice(jobs)
        source = self.source_of(job)
        if job.pending is not None:
            num = source.block_size // UNIT
            self.write(job, job.pending, source.memory[job.order.page.block][job.pending[1] % num])
            job.got.add(job.pending)
            job.pending = None
            node.consumer.progressed(job.pull_id, self.now_s)
            return
        if job.is_stopped:
            self.jobs.remove(job)
            self.run(node, node.consumer.read_failed(job.pull_id, job.order.read, Reason.CANCELLED, self.now_s))
            return
        if job.todo:
            unit = job.todo.pop(0)
            job.pending = unit if node.consumer.accepts(job.pull_id, job.order.read) else None
            return
        self.complete(node, job, source.epochs[job.slot])

    def serve(self) -> None:
        """A two-sided producer sends one more unit of a page, or ends the read."""
        name = self.rng.choice("pq")
        node = self.running(name)
        if node is None or not node.serving:
            return
        job = self.rng.choice(node.serving)
        life = self.nodes["c"].terms.incarnation
        if job.todo:
            unit = job.todo.pop(0)
            value = node.memory[job.order.page.block][unit[1] % (node.block_size // UNIT)]
            self.post("c", life, Chunk(job, unit, value, job.epoch))
            return
        node.serving.remove(job)
        self.post("c", life, Chunk(job, None, epoch=node.epochs[job.slot]))
        self.run(node, node.producer.end_read(job.wire_id, self.now_s))

    def take_chunk(self, node: Node, chunk: Chunk) -> None:
        job = chunk.job
        if node.name != "c":
            if node.producer.begin_read(job.wire_id, job.pull_id, job.epoch):
                node.serving.append(replace(job, todo=sorted(job.order.units)))
            else:
                self.post("c", self.nodes["c"].terms.incarnation, Chunk(job, None, is_refused=True))
            return
        known = next((j for j in self.jobs if j.pull_id == job.pull_id and j.order.read == job.order.read), job)
        if not node.consumer.accepts(job.pull_id, job.order.read):
            return
        node.consumer.progressed(job.pull_id, self.now_s)
        if chunk.is_refused:
            if known in self.jobs:
                self.jobs.remove(known)
            self.run(node, node.consumer.read_failed(job.pull_id, job.order.read, Reason.STALE, self.now_s))
            return
        if chunk.unit is None:
            known.epoch_after = chunk.epoch
        elif chunk.unit not in known.got:
            known.got.add(chunk.unit)
            self.write(known, chunk.unit, chunk.value)
        if known.epoch_after is not None and len(known.got) == known.num_units:
            self.complete(node, known, known.epoch_after)

    def write(self, job: Job, unit: tuple[int, int], value: Any) -> None:
        node = self.nodes["c"]
        check(job.transfer_id in node.tables, f"pull {job.pull_id} of a life before wrote")
        table = node.tables[job.transfer_id][unit[0]]
        num = node.block_size // UNIT
        block = table[unit[1] // num]
        if job.source.startswith(self.bad_sender or " ") and self.rng.random() < 0.5:
            value = ("bad", self.rng.random())
            job.is_corrupted = True
        check(node.holder[block] == job.transfer_id, f"pull {job.pull_id} wrote block {block}, which is not its own")
        check(job.transfer_id not in node.published, f"pull {job.pull_id} wrote a page that is in use")
        node.memory[block] = list(node.memory[block])
        node.memory[block][unit[1] % num] = value

    def complete(self, node: Node, job: Job, epoch: int) -> None:
        if job in self.jobs:
            self.jobs.remove(job)
        table, num = node.tables[job.transfer_id], node.block_size // UNIT
        values = [node.memory[table[g][u // num]][u % num] for g, u in sorted(job.order.units)]
        asked = self.digest(values)
        expected = [self.page_value(job, g, u) for g, u in sorted(job.order.units)]
        digest = job.order.page.digests if asked == self.digest(expected) else asked
        num_bad = node.consumer.counters.num_bad_pages
        self.run(node, node.consumer.copied(job.pull_id, job.order.read, digest, epoch, self.now_s))
        is_blamed = node.consumer.counters.num_bad_pages > num_bad
        check(job.is_corrupted or not is_blamed, f"{job.source} is blamed for a page that nobody flipped a byte of")

    def page_value(self, job: Job, group: int, unit: int) -> Any:
        return self.value(job.transfer_id, group, unit)

    @staticmethod
    def digest(values: list[Any]) -> bytes:
        return repr(values).encode()

    # --- actions -----------------------------------------------------------------------------------------------------

    def run(self, node: Node, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Send(peer=peer, message=message):
                    self.send(node, peer, message)
                case SetEpoch(slot=slot, epoch=epoch):
                    node.epochs[slot] = epoch
                case Free(transfer_id=transfer_id):
                    reading = [j for j in node.serving if j.wire_id == transfer_id]
                    check(not reading, f"{node.name}: holds of {transfer_id} went while {len(reading)} reads run")
                    node.release(transfer_id)
                    node.fills.pop(transfer_id, None)
                    for _ in range(self.rng.choice((0, NUM_BLOCKS))):
                        node.scribble(self.rng)
                case Cancel(transfer_id=transfer_id):
                    node.fills.pop(transfer_id, None)
                case Lookup(hello=hello):
                    self.lookup(node, hello)
                case Read():
                    self.start_read(node, action)
                case StopReads(pull_id=pull_id):
                    self.stop_reads(node, pull_id)
                case Commit():
                    self.commit(node, action)
                case GiveUp():
                    self.give_up(node, action)
                case Begin(transfer_id=transfer_id):
                    self.begun.add((transfer_id, node.terms.incarnation))

    def lookup(self, node: Node, hello: Hello) -> None:
        total = self.nodes["c"].num_total.get(hello.transfer_id.removesuffix("/hashes"), 50)
        full = total // node.block_size * node.block_size
        held = min(full, self.rng.choice((0, node.block_size, full, full)))
        self.reserve(node.name, hello.transfer_id, held, is_request=False)

    def stop_reads(self, node: Node, pull_id: int) -> None:
        for job in self.jobs:
            job.is_stopped |= job.pull_id == pull_id

    def send(self, node: Node, peer: str, message: Any) -> None:
        if isinstance(message, Status):
            pages = [
                msgspec.structs.replace(p, digests=b"d%d.%d.%d" % (p.group, p.index, p.block)) for p in message.pages
            ]
            message = msgspec.structs.replace(message, pages=pages)
        if isinstance(message, ProducerEnd):
            key = (message.transfer_id, message.incarnation)
            self.ends.setdefault(key, set()).add((message.outcome, message.reason))
        if isinstance(message, ConsumerEnd):
            key = (message.transfer_id, node.terms.incarnation + ">" + peer)
            self.consumer_ends.setdefault(key, set()).add((message.outcome, message.reason))
        if isinstance(message, Hello):
            self.hellos.add((message.transfer_id, node.terms.incarnation, peer))
        self.post(peer, self.nodes[peer].terms.incarnation, PEER.encode(message))

    def commit(self, node: Node, action: Commit) -> None:
        transfer_id = action.transfer_id
        self.outcomes[transfer_id].append("commit")
        self.check_values(node, transfer_id, action.num_tokens)
        node.published[transfer_id] = node.tables[transfer_id]
        node.num_total[transfer_id] = action.num_tokens
        check(action.payload in (b"", b"token 0"), f"{transfer_id}: payload {action.payload!r}")
        self.run(node, node.consumer.committed(transfer_id, self.now_s))

    def give_up(self, node: Node, action: GiveUp) -> None:
        self.outcomes[action.transfer_id].append("give_up")
        copying = [j for j in self.jobs if j.transfer_id == action.transfer_id]
        check(not copying, f"{action.transfer_id}: holds go while {len(copying)} copies run")
        self.check_values(node, action.transfer_id, action.num_tokens)
        node.release(action.transfer_id)

    def check_values(self, node: Node, transfer_id: str, num_tokens: int) -> None:
        num = node.block_size // UNIT
        for group, table in enumerate(node.tables[transfer_id]):
            for unit in range(-(-num_tokens // UNIT)):
                got = node.memory[table[unit // num]][unit % num]
                check(got == self.value(transfer_id, group, unit), f"{transfer_id}: unit {unit} used as {got}")

    def check_published(self, node: Node, transfer_id: str) -> None:
        self.check_values(node, transfer_id, node.num_total[transfer_id])

    # --- the end -----------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """No more faults: everything is delivered and enough time passes.  Then nothing may be left."""
        self.has_faults, self.is_settling = False, True
        for node in self.nodes.values():
            node.stopped_until_s = 0.0
        for round_number in range(240):
            for _ in range(200):
                before = (len(self.link), len(self.jobs), [len(n.serving) + len(n.fills) for n in self.nodes.values()])
                self.rng = random.Random(round_number)
                self.deliver()
                self.copy()
                for _ in range(2):
                    self.serve()
                    self.fill()
                self.allocate()
                is_idle = not self.link and not self.jobs and not any(n.serving or n.fills for n in self.nodes.values())
                if is_idle and before[0] == 0:
                    break
            self.end_sequence()
            self.wait(1.5)
        self.check_settled()

    def check_settled(self) -> None:
        for node in self.nodes.values():
            left = [t.transfer_id for ledger in (node.producer.ledger, node.consumer.ledger) for t in ledger]
            check(not left, f"{node.name}: transfers without an ending: {left}")
            check(not node.consumer.num_unacked_endings, f"{node.name}: endings that nobody acknowledged")
            for transfer_id in list(node.published):
                self.check_published(node, transfer_id)
                del node.published[transfer_id]
                node.release(transfer_id)
            held = {h for h in node.holder if h is not None}
            check(not held, f"{node.name}: holds of {sorted(held)} stay")
            node.producer.check_integrity()
            node.consumer.check_integrity()
        self.check_endings()

    def check_endings(self) -> None:
        for (transfer_id, life), ends in {**self.ends, **self.consumer_ends}.items():
            check(len(ends) == 1, f"{transfer_id} at {life} ended as {sorted(ends)}")
        consumer = self.nodes["c"]
        for transfer_id, life, peer in self.hellos:
            if life != consumer.terms.incarnation:
                continue
            ends = [key for key in self.consumer_ends if key == (transfer_id, f"{life}>{peer}")]
            check(bool(ends), f"{transfer_id}: {life} never ended it towards {peer}")
            producer_life = self.nodes[peer].terms.incarnation
            if (transfer_id, producer_life) in self.begun:
                check((transfer_id, producer_life) in self.ends, f"{transfer_id}: {producer_life} never ended it")
        for transfer_id, outcomes in self.outcomes.items():
            check(len(outcomes) <= 1, f"{transfer_id} came out as {outcomes}")


def run_schedule(world: World, schedule: list[int]) -> None:
    """Run a schedule to its end; raises `Violation`, or whatever a machine raises."""
    for number in schedule:
        world.step(number)
    world.settle()
