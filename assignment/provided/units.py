"""Numbers with units, as people read them: 2.63 µs, 12.1 TFLOP/s."""

PREFIXES = {1e15: "P", 1e12: "T", 1e9: "G", 1e6: "M", 1e3: "k", 1.0: ""}
SMALL = {1.0: "", 1e-3: "m", 1e-6: "µ", 1e-9: "n"}


def large(value: float, unit: str) -> str:
    """In thousands, millions and so on: 3.35 TB/s."""
    return _scaled(value, unit, PREFIXES, 1.0)


def power_of_ten(value: float, unit: str) -> str:
    """As `large`, without decimals: 100 TB/s."""
    number, _, rest = large(value, unit).partition(" ")
    return f"{float(number):.0f} {rest}".rstrip()


def seconds(value: float) -> str:
    """In seconds, or thousandths, millionths and so on of them: 14.2 ns."""
    return _scaled(value, "s", SMALL, 1e-9)


def _scaled(value: float, unit: str, prefixes: dict[float, str], least: float) -> str:
    scale = next((scale for scale in prefixes if value >= 0.9995 * scale), least)
    return f"{_three_digits(value / scale)} {prefixes[scale]}{unit}"


def _three_digits(value: float) -> str:
    """0.123, 1.23, 12.3, 123, 1,230."""
    if value >= 99.95 or value == 0:
        return f"{value:,.0f}"
    decimals = 1 if value >= 9.995 else 2 if value >= 0.9995 else 3
    return f"{value:.{decimals}f}"
