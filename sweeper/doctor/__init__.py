"""Why a draft checkpoint will not do what it should, from configs and tensor headers."""
