"""The people of the demo institute: the one list of its accounts, roles and the password."""

from dataclasses import dataclass

from django.contrib.auth.hashers import make_password
from django.contrib.auth.models import User

from budgets import services as budgets
from budgets.models import Budget, Role

PASSWORD = "allotment-demo"
SCIENCE, LANGUAGE, VISION, PLATFORM = (
    f"orlo/{slug}" for slug in ("science", "language", "vision", "platform")
)


@dataclass(frozen=True)
class Person:
    """Somebody with an account: what they do, and their role in a budget's subtree."""

    username: str
    name: str
    does: str
    path: str
    kind: str


MANAGER, MEMBER = Role.Kind.MANAGER, Role.Kind.MEMBER
PEOPLE = (
    Person("marta", "Marta Reis", "lead program manager", "orlo", MANAGER),
    Person("ines", "Ines Couto", "manager of Science", SCIENCE, MANAGER),
    Person("tomas", "Tomas Brandt", "manager of Language", LANGUAGE, MANAGER),
    Person("lena", "Lena Okafor", "manager of Vision", VISION, MANAGER),
    Person("yuki", "Yuki Tanaka", "member of Petrel", f"{SCIENCE}/petrel", MEMBER),
    Person("bo", "Bo Lindqvist", "platform engineer", "orlo", Role.Kind.ADMINISTRATOR),
    Person("dora", "Dora Pires", "director's office", "orlo", Role.Kind.VIEWER),
    Person("amir", "Amir Nasser", "member of Tern", f"{SCIENCE}/tern", MEMBER),
    Person("jun", "Jun Park", "member of Auk", f"{SCIENCE}/auk", MEMBER),
    Person("noor", "Noor Haddad", "member of Heron", f"{LANGUAGE}/heron", MEMBER),
    Person("kofi", "Kofi Mensah", "member of Wren", f"{LANGUAGE}/wren", MEMBER),
    Person("lin", "Lin Wei", "member of Magpie", f"{LANGUAGE}/magpie", MEMBER),
    Person("pavel", "Pavel Hora", "member of Lynx", f"{VISION}/lynx", MEMBER),
    Person("sofia", "Sofia Alves", "member of Ibex", f"{VISION}/ibex", MEMBER),
    Person("ravi", "Ravi Menon", "member of Platform", PLATFORM, MEMBER),
)
# Those that a visitor is shown: one for each thing that a role lets one do.
SHOWN = ("marta", "ines", "yuki", "bo", "dora")


def create() -> dict[str, User]:
    """Create everybody's account, by username. All share the demo's password, hashed once."""
    password = make_password(PASSWORD)
    users = {}
    for person in PEOPLE:
        first, last = person.name.split(" ", 1)
        users[person.username] = User.objects.create(
            username=person.username,
            first_name=first,
            last_name=last,
            email=f"{person.username}@orlo.example",
            password=password,
            is_staff=person.kind == Role.Kind.ADMINISTRATOR,
            is_superuser=person.kind == Role.Kind.ADMINISTRATOR,
        )
    return users


def give_roles(users: dict[str, User], tree: dict[str, Budget]) -> None:
    for person in PEOPLE:
        budgets.give_role(user=users[person.username], budget=tree[person.path], kind=person.kind)


def accounts() -> list[Person]:
    """Whom a visitor may sign in as, with ``PASSWORD``; nobody where no demo was loaded.

    The accounts exist exactly where the demo was loaded, whatever the settings say.
    """
    emails = {f"{name}@orlo.example" for name in SHOWN}
    known = set(User.objects.filter(email__in=emails).values_list("username", flat=True))
    return [person for person in PEOPLE if person.username in known]


def submitter(path: str) -> str:
    """Username of whoever submits the work of a project."""
    fitting = [p for p in PEOPLE if p.kind == MEMBER and f"{path}/".startswith(f"{p.path}/")]
    return fitting[0].username
