# SPDX-License-Identifier: Apache-2.0
"""Compiled parts of the dispatch simulation: which shuttle takes a rider, and what shuttles do meanwhile.

A *place* is a stop as one zone's shuttles see it, so shuttles of different zones never meet. All times are whole
seconds. There are three tables, with one row per entry and columns by the names below:

* *nodes*: future visits of shuttles, linked shuttle by shuttle (``NEXT``, ``PREVIOUS``) and place by place (``BESIDE``,
  ``BEFORE``); the latter is the index for matching riders. The first nodes, one per shuttle, stand for turning back on
  an empty drive; they are linked to a place only during such a drive.
* *shuttles*: the node where each stands or drives to (``AT``: settled, nothing is put before it), and the last one.
* *legs*: who wants to go where, and the outcome.

*Moves* is the record: one row for each drive between stops, with the stay at its end.

A shuttle leaves every visit at once when its stay is over, so any insertion delays all its later visits by the same
number of seconds. So a position is tested in a few operations: ``SLACK`` is how much a visit and all later ones can be
delayed, ``TO_BOARD`` and ``TO_ALIGHT`` are the numbers of riders who board and alight there and later. If a detour is
shorter than the direct way, an insertion may also bring visits forward. Riders who then board sooner must alight
sooner: deadlines come forward as well, so slack never grows. See :mod:`dunnage.planning.dispatch`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dunnage.arrays import kernel, piece

# Any: compiled functions take tuples of arrays, which have no type.

# Columns of nodes. BOARDING and ALIGHTING are the first legs of lists, BOARDS and ALIGHTS their lengths.
PLACE, ARRIVE, LEAVE, LOAD, SLACK, TO_BOARD, TO_ALIGHT, NEXT, PREVIOUS, SHUTTLE, BESIDE, BEFORE = range(12)
BOARDING, ALIGHTING, BOARDS, ALIGHTS, DEADLINE, MOVE, BUCKET = range(12, 19)
NODE_COLUMNS = 19
# Columns of shuttles.
ZONE, AT, LAST, STATE = range(4)
SHUTTLE_COLUMNS = 4
PARKED, SERVING, REPOSITIONING = range(3)
# Columns of legs; the first is ZONE too.
ORIGIN, DESTINATION, LONGEST, CHILD, SIBLING, LAG, REQUESTED, PICKED, DROPPED, BY, NEXT_BOARD, NEXT_ALIGHT = range(
    1, 13
)
BOARD_MOVE, ALIGHT_MOVE = range(13, 15)
LEG_COLUMNS = 15
# Columns of moves. TURNED is when the shuttle turned back to where it came from, or -1; CARRIED its riders on the way.
MOVED, FROM, TO, DEPARTED, TURNED, ARRIVED, LEFT, CARRIED = range(8)
MOVE_COLUMNS = 8
# Columns of zones: first place, number of places, where its square of travel times starts, first home, number of homes,
# first shuttle, number of shuttles, when something was requested last, how many parked shuttles are asleep, how many
# shuttles have no work, whether these follow the latest requests, first post, number of posts, and number of places
# with recent requests.
FIRST, SIZE, SQUARE, HOME, HOMES, FLEET, VEHICLES, LATEST, ASLEEP, IDLE, FOLLOWS, POST, POSTS, RECENT = range(14)
# Columns of posts, by importance: the place, how many posts at this place come up to this one, and the next of them.
STAND, ORDINAL, AGAIN = range(3)
POST_COLUMNS = 3
# Rules of a service, the second at which the first period of posts begins, and the seconds of a period.
CAPACITY, MAX_WAIT, DWELL, WEIGH_WAIT, WEIGH_RIDE, WEIGH_DRIVE, BEGIN, PERIOD = range(8)
# Columns of demand, one line per place: number of the running window, requests in it and in the one before, shuttles
# without work that are there or on their way there, and whether it is listed. From the first line of a zone on, LIST
# has the places with recent requests.
NUMBER, RUNNING, BYGONE, STOCK, LISTED, LIST = range(6)
DEMAND_COLUMNS = 6
# The best so far: its cost, the node after or at which the rider boards, and where the rider alights.
COST, BOARD_AT, ALIGHT_AT, HOW, POSITIONS, PLACES = range(6)
BEST_COLUMNS = 6
AT_ONCE, AFTER, WITH = range(3)  # directly after boarding, at a visit inserted after a node, or at a node
NEVER = 1 << 62
# Parts of the index, each with a list a place: visits that others follow, last visits and where shuttles stand, where
# shuttles can turn back to, and the last entries of the second part.
VISITS, ENDS, TURNS, TAILS, PARTS = range(5)
# Spare: the first node that was given back, the number of nodes and of moves, and how often parked shuttles may still
# be sent elsewhere: that bounds the record.
GIVEN_BACK, NUM_NODES, NUM_MOVES, EXTRA = range(4)

WINDOW = 900  # seconds: demand is what was requested in this time or somewhat longer
REVIEW = 60  # seconds after which a parked shuttle looks again where it is wanted
PATIENCE = 7200  # seconds: a shuttle that would wait longer for its turn goes home
OPEN_SHARE = 10  # where shuttles do not follow requests, one more post is open for so many shuttles of the zone
GRACE = 300  # seconds: a late rider may become this much later, otherwise nobody could be put before


@piece
def earlier(keys: Any, one: int, other: int) -> Any:
    return keys[one] < keys[other] or (keys[one] == keys[other] and one < other)


@piece
def sift_up(heap: Any, spots: Any, keys: Any, spot: int) -> Any:
    entry = heap[spot]
    while spot > 0:
        above = (spot - 1) >> 1
        if not earlier(keys, entry, heap[above]):
            break
        heap[spot] = heap[above]
        spots[heap[spot]] = spot
        spot = above
    heap[spot] = entry
    spots[entry] = spot


@piece
def sift_down(heap: Any, spots: Any, keys: Any, spot: int, size: int) -> Any:
    entry = heap[spot]
    while 2 * spot + 1 < size:
        below = 2 * spot + 1
        if below + 1 < size and earlier(keys, heap[below + 1], heap[below]):
            below += 1
        if not earlier(keys, heap[below], entry):
            break
        heap[spot] = heap[below]
        spots[heap[spot]] = spot
        spot = below
    heap[spot] = entry
    spots[entry] = spot


@piece
def reschedule(clock: Any, shuttle: int, time: int) -> Any:
    heap, spots, keys = clock
    keys[shuttle] = time
    sift_up(heap, spots, keys, spots[shuttle])
    sift_down(heap, spots, keys, spots[shuttle], len(heap))


@piece
def link(nodes: Any, heads: Any, node: int, part: int) -> Any:
    """Enter a node in a part of the index: visits and those that may turn in front, ends in the order of leaving."""
    num = len(heads) // PARTS
    bucket, tail = part * num + nodes[node, PLACE], TAILS * num + nodes[node, PLACE]
    before = np.int64(-1)
    if part == ENDS:
        before = heads[tail]
        while before >= 0 and nodes[before, LEAVE] > nodes[node, LEAVE]:
            before = nodes[before, BEFORE]
    beside = nodes[before, BESIDE] if before >= 0 else heads[bucket]
    nodes[node, BUCKET], nodes[node, BEFORE], nodes[node, BESIDE] = bucket, before, beside
    if before >= 0:
        nodes[before, BESIDE] = node
    else:
        heads[bucket] = node
    if beside >= 0:
        nodes[beside, BEFORE] = node
    elif part == ENDS:
        heads[tail] = node


@piece
def unlink(nodes: Any, heads: Any, node: int) -> Any:
    before, beside, bucket = nodes[node, BEFORE], nodes[node, BESIDE], nodes[node, BUCKET]
    if bucket < 0:
        return
    num = len(heads) // PARTS
    if before >= 0:
        nodes[before, BESIDE] = beside
    else:
        heads[bucket] = beside
    if beside >= 0:
        nodes[beside, BEFORE] = before
    elif bucket // num == ENDS:
        heads[TAILS * num + nodes[node, PLACE]] = before
    nodes[node, BUCKET] = -1


@piece
def index(nodes: Any, heads: Any, rules: Any, first: int, last: int) -> Any:
    """Enter the visits of a shuttle in the index, except those that it leaves full."""
    num = len(heads) // PARTS
    node = last
    while node >= 0:
        part = ENDS if node == last else VISITS
        if nodes[node, LOAD] >= rules[CAPACITY]:
            unlink(nodes, heads, node)
        elif part == ENDS or nodes[node, BUCKET] // num != part:
            unlink(nodes, heads, node)
            link(nodes, heads, node, part)
        node = nodes[node, PREVIOUS] if node != first else -1


@piece
def new_node(nodes: Any, spare: Any, shuttle: int, place: int) -> Any:
    if spare[GIVEN_BACK] >= 0:
        node = spare[GIVEN_BACK]
        spare[GIVEN_BACK] = nodes[node, NEXT]
    else:
        node = spare[NUM_NODES]
        spare[NUM_NODES] += 1
    nodes[node, PLACE], nodes[node, SHUTTLE] = place, shuttle
    nodes[node, LOAD] = nodes[node, BOARDS] = nodes[node, ALIGHTS] = 0
    nodes[node, NEXT] = nodes[node, PREVIOUS] = nodes[node, BOARDING] = nodes[node, ALIGHTING] = -1
    nodes[node, DEADLINE], nodes[node, MOVE], nodes[node, BUCKET] = NEVER, -1, -1
    return node


@piece
def drop_node(nodes: Any, heads: Any, spare: Any, node: int) -> Any:
    unlink(nodes, heads, node)
    nodes[node, NEXT] = spare[GIVEN_BACK]
    spare[GIVEN_BACK] = node


@piece
def consider(nodes: Any, zone: Any, times: Any, rules: Any, node: int, rider: Any, best: Any) -> Any:
    """Test boarding at or after a node, with every place to alight; record it if it beats the best so far."""
    # The cost is the weighted sum of the time that all riders lose, waiting and riding, and of the longer drive.
    now, origin, destination, most_wait, longest = rider
    size, dwell = zone[SIZE], rules[DWELL]
    start = zone[SQUARE] - zone[FIRST] * (size + 1)
    place, after = nodes[node, PLACE], nodes[node, NEXT]
    if nodes[node, LOAD] >= rules[CAPACITY] or (after >= 0 and place != origin and nodes[after, PLACE] == origin):
        return
    if place == origin:
        pick = max(nodes[node, ARRIVE], now)
        leave = max(nodes[node, LEAVE], pick + dwell)
    else:
        pick = nodes[node, LEAVE] + times[start + place * size + origin]
        leave = pick + dwell
    if pick - now > most_wait:
        return
    cost = rules[WEIGH_WAIT] * (pick - now)
    direct = dwell + times[start + origin * size + destination]
    drop = leave + direct - dwell
    shift = np.int64(0)
    if after < 0:
        if drop - pick <= longest:
            cost += rules[WEIGH_DRIVE] * (drop + dwell - nodes[node, LEAVE])
            cost += rules[WEIGH_RIDE] * max(drop - pick - direct, 0)
            keep(best, cost, node, node, AT_ONCE)
        return
    ahead = nodes[after, PLACE]
    if place == origin:
        shift = leave - nodes[node, LEAVE]
    else:
        shift = leave + times[start + origin * size + ahead] - nodes[after, ARRIVE]
    if shift > nodes[after, SLACK]:
        return
    cost += put_off(nodes, rules, after, shift)
    if cost + rules[WEIGH_DRIVE] * shift >= best[COST]:
        return
    if ahead != destination and drop - pick <= longest:
        further = drop + dwell + times[start + destination * size + ahead] - nodes[after, ARRIVE]
        if further <= nodes[after, SLACK]:
            more = put_off(nodes, rules, after, further - shift) + rules[WEIGH_DRIVE] * further
            keep(best, cost + more + rules[WEIGH_RIDE] * max(drop - pick - direct, 0), node, node, AT_ONCE)
    while after >= 0:
        best[POSITIONS] += 1
        place = nodes[after, PLACE]
        drop = nodes[after, ARRIVE] + shift
        if place == destination:
            if drop - pick <= longest:
                more = rules[WEIGH_DRIVE] * shift + rules[WEIGH_RIDE] * max(drop - pick - direct, 0)
                keep(best, cost + more, node, after, WITH)
            return
        drop = nodes[after, LEAVE] + shift + times[start + place * size + destination]
        if nodes[after, LOAD] >= rules[CAPACITY] or nodes[after, LEAVE] + shift - pick > longest:
            return
        beyond = nodes[after, NEXT]
        if drop - pick <= longest and (beyond < 0 or nodes[beyond, PLACE] != destination):
            more = rules[WEIGH_RIDE] * max(drop - pick - direct, 0)
            if beyond < 0:
                more += rules[WEIGH_DRIVE] * (drop + dwell - nodes[after, LEAVE])
                keep(best, cost + more, node, after, AFTER)
            else:
                ahead = nodes[beyond, PLACE]
                further = drop + dwell + times[start + destination * size + ahead] - nodes[beyond, ARRIVE]
                # Riders who board in between ride longer by as much as that comes forward.
                if further - min(shift, 0) <= nodes[beyond, SLACK]:
                    more += put_off(nodes, rules, beyond, further - shift) + rules[WEIGH_DRIVE] * further
                    keep(best, cost + more, node, after, AFTER)
        after = beyond


@piece
def put_off(nodes: Any, rules: Any, node: int, seconds: int) -> Any:
    """Return the cost to riders of delaying a visit and all later ones."""
    waiting, riding = nodes[node, TO_BOARD], nodes[node, TO_ALIGHT] - nodes[node, TO_BOARD]
    return max(seconds, 0) * (rules[WEIGH_WAIT] * waiting + rules[WEIGH_RIDE] * riding)


@piece
def keep(best: Any, cost: int, board: int, alight: int, how: int) -> Any:
    if cost < best[COST]:
        best[COST], best[BOARD_AT], best[ALIGHT_AT], best[HOW] = cost, board, alight, how


@piece
def search(tables: Any, heads: Any, zone: Any, ways: Any, rules: Any, rider: Any, best: Any) -> Any:
    """Search the best shuttle for a rider, nearest places first."""
    # A shuttle from a place cannot arrive sooner than if it left now, and no cost is below zero: once the wait for the
    # drive alone costs as much as the best so far, no place further away can be better. Among shuttles that end their
    # work at one place only the first to be free is tested, and among those that can turn back to it only the last to
    # leave. A rider who may have to wait for ever is put at an end, or with others who board at the same place.
    nodes, shuttles, _, moves = tables
    num = len(heads) // PARTS
    times, near = ways
    now, origin, _, most_wait, _ = rider
    size, first = zone[SIZE], zone[FIRST]
    start = zone[SQUARE] - first * (size + 1)
    row = zone[SQUARE] + (origin - first) * size
    for rank in range(size):
        place = first + near[row + rank]
        far = times[start + place * size + origin]
        if far > most_wait or rules[WEIGH_WAIT] * far >= best[COST]:
            return
        best[PLACES] += 1
        node = heads[ENDS * num + place]
        if node >= 0:
            nodes[node, LEAVE] = max(nodes[node, LEAVE], now)
            consider(nodes, zone, times, rules, node, rider, best)
        node = heads[TURNS * num + place]
        if node >= 0:
            # Turning back takes the same share of the way back as was driven of the way out.
            goal = nodes[shuttles[node, AT], PLACE]
            out, back = times[start + place * size + goal], times[start + goal * size + place]
            driven = now - moves[nodes[node, MOVE], DEPARTED]
            nodes[node, ARRIVE] = nodes[node, LEAVE] = now + (back * driven + out - 1) // out
            consider(nodes, zone, times, rules, node, rider, best)
        node = heads[VISITS * num + place] if place == origin or most_wait < NEVER else -1
        while node >= 0:
            best[POSITIONS] += 1
            if place == origin or rules[WEIGH_WAIT] * (nodes[node, LEAVE] + far - now) < best[COST]:
                consider(nodes, zone, times, rules, node, rider, best)
            node = nodes[node, BESIDE]


@piece
def insert_after(tables: Any, spare: Any, node: int, place: int) -> Any:
    nodes, shuttles = tables[0], tables[1]
    shuttle, after = nodes[node, SHUTTLE], nodes[node, NEXT]
    fresh = new_node(nodes, spare, shuttle, place)
    nodes[fresh, PREVIOUS], nodes[fresh, NEXT], nodes[node, NEXT] = node, after, fresh
    nodes[fresh, LOAD] = nodes[node, LOAD]
    if after >= 0:
        nodes[after, PREVIOUS] = fresh
    else:
        shuttles[shuttle, LAST] = fresh
    return fresh


@piece
def new_move(moves: Any, spare: Any, shuttle: int, start: int, end: int) -> Any:
    move = spare[NUM_MOVES]
    spare[NUM_MOVES] += 1
    moves[move, MOVED], moves[move, FROM], moves[move, TO], moves[move, TURNED] = shuttle, start, end, -1
    return move


@piece
def board(tables: Any, spare: Any, rules: Any, node: int, leg: int, now: int) -> Any:
    """Enter where a rider boards; return that node."""
    nodes, shuttles, legs, moves = tables
    if nodes[node, PLACE] == legs[leg, ORIGIN]:
        if node == shuttles[nodes[node, SHUTTLE], AT]:
            # Where the shuttle stands or is about to arrive: all who board get the whole stay.
            if nodes[node, MOVE] < 0 or moves[nodes[node, MOVE], LEFT] < now:  # it stood there for nobody
                move = new_move(moves, spare, nodes[node, SHUTTLE], nodes[node, PLACE], nodes[node, PLACE])
                moves[move, DEPARTED] = moves[move, ARRIVED] = nodes[node, ARRIVE] = now
                moves[move, CARRIED] = 0
                nodes[node, MOVE] = move
            pick = max(nodes[node, ARRIVE], now)
            nodes[node, LEAVE] = max(nodes[node, LEAVE], pick + rules[DWELL])
            moves[nodes[node, MOVE], LEFT] = nodes[node, LEAVE]
            legs[leg, PICKED], legs[leg, BOARD_MOVE] = pick, nodes[node, MOVE]
            nodes[node, LOAD] += 1
            return node
    else:
        node = insert_after(tables, spare, node, legs[leg, ORIGIN])
    nodes[node, LOAD] += 1
    nodes[node, BOARDS] += 1
    legs[leg, NEXT_BOARD], nodes[node, BOARDING] = nodes[node, BOARDING], leg
    return node


@piece
def alight(tables: Any, spare: Any, boarded: int, leg: int, best: Any) -> Any:
    """Enter where a rider alights, and the seat taken until then; return that node."""
    nodes, _, legs, _ = tables
    last = boarded if best[HOW] == AT_ONCE else best[ALIGHT_AT]
    node = boarded
    while node != last:
        node = nodes[node, NEXT]
        if node != last or best[HOW] == AFTER:
            nodes[node, LOAD] += 1
    if best[HOW] != WITH:
        node = insert_after(tables, spare, last, legs[leg, DESTINATION])
        nodes[node, LOAD] -= 1
    nodes[node, ALIGHTS] += 1
    legs[leg, NEXT_ALIGHT], nodes[node, ALIGHTING] = nodes[node, ALIGHTING], leg
    return node


@piece
def retime(nodes: Any, zone: Any, times: Any, rules: Any, node: int) -> Any:
    """Recompute the times of all visits after a node; a deadline comes forward by as much as any visit up to there."""
    # This is exact for riders who board there, and stricter than necessary for others. New visits have no deadline yet.
    start = zone[SQUARE] - zone[FIRST] * (zone[SIZE] + 1)
    sooner = np.int64(0)
    after = nodes[node, NEXT]
    while after >= 0:
        way = times[start + nodes[node, PLACE] * zone[SIZE] + nodes[after, PLACE]]
        if nodes[after, DEADLINE] < NEVER:
            sooner = max(sooner, nodes[after, ARRIVE] - nodes[node, LEAVE] - way)
            nodes[after, DEADLINE] -= sooner
        nodes[after, ARRIVE] = nodes[node, LEAVE] + way
        nodes[after, LEAVE] = nodes[after, ARRIVE] + rules[DWELL]
        node, after = after, nodes[after, NEXT]


@piece
def accept(
    tables: Any, heads: Any, spare: Any, demand: Any, zone: Any, times: Any, rules: Any, leg: int, best: Any
) -> Any:
    nodes, shuttles, legs, moves = tables
    now, node = legs[leg, REQUESTED], best[BOARD_AT]
    shuttle = nodes[node, SHUTTLE]
    if shuttles[shuttle, STATE] != SERVING:
        demand[nodes[shuttles[shuttle, AT], PLACE], STOCK] -= 1
        zone[IDLE] -= 1
    if shuttles[shuttle, STATE] == REPOSITIONING:
        unlink(nodes, heads, shuttle)
        if node == shuttle:  # it turns back
            move = nodes[shuttle, MOVE]
            drop_node(nodes, heads, spare, shuttles[shuttle, AT])
            node = new_node(nodes, spare, shuttle, nodes[shuttle, PLACE])
            nodes[node, ARRIVE] = nodes[node, LEAVE] = nodes[shuttle, LEAVE]
            nodes[node, MOVE] = move
            moves[move, TURNED], moves[move, ARRIVED], moves[move, LEFT] = now, nodes[node, LEAVE], nodes[node, LEAVE]
            shuttles[shuttle, AT] = shuttles[shuttle, LAST] = node
    if best[HOW] == AT_ONCE:
        best[ALIGHT_AT] = node
    if shuttles[shuttle, STATE] == PARKED:
        nodes[node, LEAVE] = now
    boarded = board(tables, spare, rules, node, leg, now)
    alighted = alight(tables, spare, boarded, leg, best)
    retime(nodes, zone, times, rules, node)
    at = shuttles[shuttle, AT]
    pick = legs[leg, PICKED] if boarded == at else nodes[boarded, ARRIVE]
    # A late rider may become a little later still, otherwise nobody could be put before.
    if boarded != at:
        latest = now + rules[MAX_WAIT]
        nodes[boarded, DEADLINE] = min(nodes[boarded, DEADLINE], latest if pick <= latest else pick + GRACE)
    latest, drop = pick + legs[leg, LONGEST], nodes[alighted, ARRIVE]
    nodes[alighted, DEADLINE] = min(nodes[alighted, DEADLINE], latest if drop <= latest else drop + GRACE)
    # Renew what is summed from the end of the shuttle's visits.
    slack, to_board, to_alight = np.int64(NEVER), np.int64(0), np.int64(0)
    node = shuttles[shuttle, LAST]
    while node != at:
        slack = min(slack, nodes[node, DEADLINE] - nodes[node, ARRIVE])
        to_board += nodes[node, BOARDS]
        to_alight += nodes[node, ALIGHTS]
        nodes[node, SLACK], nodes[node, TO_BOARD], nodes[node, TO_ALIGHT] = slack, to_board, to_alight
        node = nodes[node, PREVIOUS]
    index(nodes, heads, rules, at, shuttles[shuttle, LAST])
    shuttles[shuttle, STATE] = SERVING
    legs[leg, BY] = shuttle
    return shuttle


@piece
def roll(demand: Any, place: int, now: int) -> Any:
    window = now // WINDOW
    if demand[place, NUMBER] != window:
        demand[place, BYGONE] = demand[place, RUNNING] if demand[place, NUMBER] == window - 1 else 0
        demand[place, RUNNING], demand[place, NUMBER] = 0, window


@piece
def wanted_place(zone: Any, times: Any, demand: Any, rules: Any, place: int, now: int) -> Any:
    """Return where a shuttle without work is useful soonest; -1 if that would take too long everywhere."""
    # After the drive there, its turn comes when the shuttles already there have left full, and as many riders again
    # have come.
    row = zone[SQUARE] + (place - zone[FIRST]) * zone[SIZE] - zone[FIRST]
    gone = now % WINDOW
    best: Any = np.int64(-1)
    least = np.int64(PATIENCE)
    spot = zone[FIRST]
    while spot < zone[FIRST] + zone[RECENT]:
        there = demand[spot, LIST]
        roll(demand, there, now)
        requests = demand[there, BYGONE] * (WINDOW - gone) + demand[there, RUNNING] * WINDOW
        if demand[there, BYGONE] + demand[there, RUNNING] == 0:  # the last of the list takes its spot
            demand[there, LISTED] = 0
            zone[RECENT] -= 1
            demand[spot, LIST] = demand[zone[FIRST] + zone[RECENT], LIST]
            continue
        spot += 1
        if requests > 0:
            turn = (demand[there, STOCK] + 1) * rules[CAPACITY] * WINDOW * WINDOW // requests + times[row + there]
            if turn < least or (turn == least and there < best):
                best, least = there, turn
    return best


@piece
def nearest_home(zone: Any, times: Any, homes: Any, place: int) -> Any:
    row = zone[SQUARE] + (place - zone[FIRST]) * zone[SIZE] - zone[FIRST]
    best = homes[zone[HOME]]
    for home in homes[zone[HOME] : zone[HOME] + zone[HOMES]]:
        if times[row + home] < times[row + best]:
            best = home
    return best


@piece
def nearest_post(zone: Any, times: Any, parks: Any, demand: Any, rules: Any, place: int, now: int) -> Any:
    """Return the nearest open post: with n shuttles without work, about the first n posts should each have one."""
    # If shuttles only wait at posts, some more are open, so that few drive far for a post that is slightly better.
    _, posts, firsts = parks
    period = min(max((now - rules[BEGIN]) // rules[PERIOD], 0), len(posts) - 1)
    num = zone[IDLE] if zone[FOLLOWS] else zone[IDLE] + zone[VEHICLES] // OPEN_SHARE
    start = zone[POST]
    # Where it stands, it takes the post after those of the others there.
    own = firsts[period, place]
    for _ in range(demand[place, STOCK]):
        if own < 0:
            break
        own = posts[period, start + own, AGAIN]
    if 0 <= own < num:
        return place
    row = zone[SQUARE] + (place - zone[FIRST]) * zone[SIZE] - zone[FIRST]
    best: Any = np.int64(place)
    least = np.int64(NEVER)
    for post in range(start, start + num):
        there = posts[period, post, STAND]
        if demand[there, STOCK] < posts[period, post, ORDINAL] and times[row + there] < least:
            best, least = there, np.int64(times[row + there])
    return best


@piece
def rest(tables: Any, lists: Any, zone: Any, times: Any, parks: Any, rules: Any, shuttle: int, now: int) -> Any:
    """Send a shuttle without work where it is wanted, or to its post or home, or park it; return when to call again."""
    # After a drive it parks first, so that the record shows it standing.
    nodes, shuttles, _, moves = tables
    heads, spare, demand = lists
    state, at = shuttles[shuttle, STATE], shuttles[shuttle, AT]
    place = nodes[at, PLACE]
    if state == REPOSITIONING:
        unlink(nodes, heads, shuttle)
        shuttles[shuttle, STATE] = PARKED
        return now + REVIEW
    if state == PARKED:
        demand[place, STOCK] -= 1
    else:
        zone[IDLE] += 1
    goal: Any = np.int64(place)
    if state == SERVING or spare[EXTRA] > 0:
        goal = np.int64(-1)
        if zone[FOLLOWS] and now - zone[LATEST] <= 2 * WINDOW:
            goal = wanted_place(zone, times, demand, rules, place, now)
        if goal < 0 and zone[POSTS]:
            goal = nearest_post(zone, times, parks, demand, rules, place, now)
        elif goal < 0:
            goal = nearest_home(zone, times, parks[0], place)
    drive = times[zone[SQUARE] + (place - zone[FIRST]) * zone[SIZE] + goal - zone[FIRST]]
    if drive == 0:
        goal = place
    demand[goal, STOCK] += 1
    if goal == place:
        shuttles[shuttle, STATE] = PARKED
        return now + REVIEW
    spare[EXTRA] -= state == PARKED
    there = now + drive
    move = new_move(moves, spare, shuttle, place, goal)
    moves[move, DEPARTED], moves[move, ARRIVED], moves[move, LEFT], moves[move, CARRIED] = now, there, there, 0
    node = new_node(nodes, spare, shuttle, goal)
    nodes[node, ARRIVE] = nodes[node, LEAVE] = there
    nodes[node, MOVE] = nodes[shuttle, MOVE] = move
    nodes[shuttle, PLACE], nodes[shuttle, LOAD] = place, 0
    drop_node(nodes, heads, spare, at)
    link(nodes, heads, node, ENDS)
    link(nodes, heads, shuttle, TURNS)
    shuttles[shuttle, AT] = shuttles[shuttle, LAST] = node
    shuttles[shuttle, STATE] = REPOSITIONING
    return there


@piece
def depart(tables: Any, heads: Any, spare: Any, linked: Any, shuttle: int) -> Any:
    """Drive on to the next visit; return the waits of those who board there."""
    nodes, shuttles, legs, moves = tables
    at = shuttles[shuttle, AT]
    node = nodes[at, NEXT]
    move = new_move(moves, spare, shuttle, nodes[at, PLACE], nodes[node, PLACE])
    moves[move, DEPARTED], moves[move, ARRIVED] = nodes[at, LEAVE], nodes[node, ARRIVE]
    moves[move, LEFT], moves[move, CARRIED] = nodes[node, LEAVE], nodes[at, LOAD]
    nodes[node, MOVE], nodes[node, PREVIOUS] = move, -1
    shuttles[shuttle, AT] = node
    drop_node(nodes, heads, spare, at)
    # It is settled now who boards and alights there.
    heap, spots, keys, size = linked
    waits = np.int64(0)
    time = nodes[node, ARRIVE]
    leg = nodes[node, BOARDING]
    while leg >= 0:
        legs[leg, PICKED], legs[leg, BOARD_MOVE] = time, move
        waits += time - legs[leg, REQUESTED]
        leg = legs[leg, NEXT_BOARD]
    leg = nodes[node, ALIGHTING]
    while leg >= 0:
        legs[leg, DROPPED], legs[leg, ALIGHT_MOVE] = time, move
        child = legs[leg, CHILD]
        while child >= 0:  # a second leg, requested at a time that follows now
            keys[child] = time + legs[child, LAG]
            heap[size[0]], spots[child] = child, size[0]
            size[0] += 1
            sift_up(heap, spots, keys, spots[child])
            child = legs[child, SIBLING]
        leg = legs[leg, NEXT_ALIGHT]
    return waits


@piece
def stir(tables: Any, lists: Any, zones: Any, times: Any, parks: Any, rules: Any, shuttle: int, over: bool) -> Any:
    """Let a shuttle act next; return how many riders board where it goes, their waits, and when these began."""
    nodes, shuttles, _, _ = tables
    heads, clock, linked, demand, spare = lists
    at = shuttles[shuttle, AT]
    zone = zones[shuttles[shuttle, ZONE]]
    if nodes[at, NEXT] >= 0:
        boards = nodes[nodes[at, NEXT], BOARDS]
        waits = depart(tables, heads, spare, linked, shuttle)
        at = shuttles[shuttle, AT]
        reschedule(clock, shuttle, nodes[at, LEAVE])
        return boards, waits, boards * nodes[at, ARRIVE] - waits
    now = clock[2][shuttle]
    again = rest(tables, (heads, spare, demand), zone, times, parks, rules, shuttle, now)
    # If there were no requests recently, parked shuttles may sleep, unless the next hour has other posts.
    if shuttles[shuttle, STATE] == PARKED and (over or (now - zone[LATEST] > 2 * WINDOW and zone[POSTS] == 0)):
        again = NEVER
        zone[ASLEEP] += 1
    reschedule(clock, shuttle, again)
    return np.int64(0), np.int64(0), np.int64(0)


@piece
def match(tables: Any, lists: Any, zone: Any, ways: Any, rules: Any, leg: int, best: Any) -> Any:
    """Choose a shuttle for a leg and give it the rider; return whether it comes within the limits of the service."""
    nodes, shuttles, legs, _ = tables
    heads, clock, _, demand, spare = lists
    now = legs[leg, REQUESTED]
    best[COST] = NEVER
    rider = (now, legs[leg, ORIGIN], legs[leg, DESTINATION], rules[MAX_WAIT], legs[leg, LONGEST])
    search(tables, heads, zone, ways, rules, rider, best)
    within = best[COST] < NEVER
    if not within:
        rider = (now, legs[leg, ORIGIN], legs[leg, DESTINATION], np.int64(NEVER), np.int64(NEVER))
        search(tables, heads, zone, ways, rules, rider, best)
    chosen = nodes[best[BOARD_AT], SHUTTLE]
    zone[ASLEEP] -= shuttles[chosen, STATE] == PARKED and clock[2][chosen] == NEVER
    shuttle = accept(tables, heads, spare, demand, zone, ways[0], rules, leg, best)
    reschedule(clock, shuttle, nodes[shuttles[shuttle, AT], LEAVE])
    roll(demand, legs[leg, ORIGIN], now)
    demand[legs[leg, ORIGIN], RUNNING] += 1
    if demand[legs[leg, ORIGIN], LISTED] == 0:
        demand[legs[leg, ORIGIN], LISTED] = 1
        demand[zone[FIRST] + zone[RECENT], LIST] = legs[leg, ORIGIN]
        zone[RECENT] += 1
    zone[LATEST] = now
    for other in range(zone[FLEET], zone[FLEET] + zone[VEHICLES]):  # wake sleeping shuttles
        if zone[ASLEEP] == 0:
            break
        if shuttles[other, STATE] == PARKED and clock[2][other] == NEVER:
            reschedule(clock, other, now)
            zone[ASLEEP] -= 1
    return within


@kernel
def operate(
    tables: Any, zones: Any, ways: Any, parks: Any, rules: Any, order: Any, lists: Any, abort_sum: Any, best: Any
) -> Any:
    """Operate all shuttles through all requests in the order of time; fills the tables."""
    legs, clock, linked = tables[2], lists[1], lists[2]
    # The sum of finished waits, the number of waiting riders, and the sum of the times when they began to wait
    waits, waiting, since = np.int64(0), np.int64(0), np.int64(0)
    taken, late = 0, 0
    while True:
        by_link = linked[3][0] > 0 and (taken == len(order) or linked[2][linked[0][0]] <= legs[order[taken], REQUESTED])
        time = np.int64(NEVER)
        if by_link:
            time = linked[2][linked[0][0]]
        elif taken < len(order):
            time = legs[order[taken], REQUESTED]
        if len(clock[0]) and clock[2][clock[0][0]] < time:
            boards, ended, began = stir(tables, lists, zones, ways[0], parks, rules, clock[0][0], time == NEVER)
            waits += ended
            waiting -= boards
            since -= began
            continue
        if time == NEVER:
            return False, late
        if by_link:
            heap, spots, keys, size = linked
            leg = heap[0]
            size[0] -= 1
            heap[0] = heap[size[0]]
            spots[heap[0]] = 0
            sift_down(heap, spots, keys, 0, size[0])
            legs[leg, REQUESTED] = time
        else:
            leg = order[taken]
            taken += 1
        late += not match(tables, lists, zones[legs[leg, ZONE]], ways, rules, leg, best)
        if legs[leg, PICKED] >= 0:
            waits += legs[leg, PICKED] - time
        else:
            waiting += 1
            since += time
        if waits + waiting * time - since > abort_sum:
            return True, late


@kernel
def park_all(nodes: Any, shuttles: Any, heads: Any, demand: Any, places: Any, time: int, extra: int) -> Any:
    spare = np.array([-1, len(shuttles), 0, extra])
    for shuttle in range(len(shuttles)):
        node = new_node(nodes, spare, shuttle, places[shuttle])
        nodes[node, ARRIVE] = nodes[node, LEAVE] = time
        nodes[shuttle, SHUTTLE], nodes[shuttle, NEXT], nodes[shuttle, PREVIOUS] = shuttle, -1, -1
        shuttles[shuttle, AT] = shuttles[shuttle, LAST] = node
        link(nodes, heads, node, ENDS)
        shuttles[shuttle, STATE], nodes[shuttle, BUCKET] = PARKED, -1
        demand[places[shuttle], STOCK] += 1
    return spare


LEVELS = 4
"""Posts near a stop that count when posts are chosen: one is taken half of the time, then the next nearest comes."""


@piece
def gain(times: Any, rides: Any, reach: Any, post: int) -> Any:
    """Return how much sooner riders are reached, in total, with one more post."""
    total = np.int64(0)
    for stop in range(len(rides)):
        time = np.int64(times[post, stop])
        if time < reach[stop, LEVELS - 1]:
            behind = np.int64(0)
            for level in range(LEVELS):
                here = max(time, behind)
                if here < reach[stop, level]:
                    total += rides[stop] * (reach[stop, level] - here) << (LEVELS - 1 - level)
                behind = reach[stop, level]
    return total


@kernel
def choose_posts(times: Any, rides: Any, num: int) -> Any:
    """Choose posts one by one, each where it brings shuttles soonest to riders; the first at a tie."""
    # The time to a rider is that of the nearest post half of the time, of the second nearest a quarter, and so on. A
    # gain can only become smaller, so only the most promising posts are computed again.
    size = len(rides)
    reach = np.zeros((size, LEVELS), dtype=np.int64)
    gains = np.zeros(size, dtype=np.int64)
    posts = np.empty(num, dtype=np.int64)
    for number in range(num):
        best = np.argmax(gains)
        fresh = gain(times, rides, reach, best)
        while fresh < gains[best]:
            gains[best] = fresh
            best = np.argmax(gains)
            fresh = gain(times, rides, reach, best)
        if fresh == 0:  # at the start, and when each stop has as many posts as count
            reach[:] = np.int64(times.max()) + 1
            for post in range(size):
                gains[post] = gain(times, rides, reach, post)
            best = np.argmax(gains)
        posts[number] = best
        for stop in range(size):
            behind = np.int64(times[best, stop])
            for level in range(LEVELS):
                here = reach[stop, level]
                reach[stop, level] = min(here, behind)
                behind = max(here, behind)
    return posts


@kernel
def list_posts(posts: Any, firsts: Any, stands: Any) -> Any:
    """Enter the posts of a zone and the first of each place, from the last to the first: each knows the next."""
    for post in range(len(stands) - 1, -1, -1):
        posts[post, STAND], posts[post, AGAIN] = stands[post], firsts[stands[post]]
        firsts[stands[post]] = post
    for post in range(len(stands)):
        if firsts[stands[post]] == post:
            number, other = 1, post
            while other >= 0:
                posts[other, ORDINAL] = number
                number, other = number + 1, posts[other, AGAIN]
